"""The five experiments on an H200, as programs: each with its bug, and fixed."""

from __future__ import annotations

import torch

N = 1 << 14


def _poisoned_source(fixed: bool) -> torch.Tensor:
    """The host rewrites a pinned source while the copy may still be queued."""
    side = torch.cuda.Stream()
    source = torch.full((N,), 1.0).pin_memory()
    with torch.cuda.stream(side):
        batch = source.to("cuda", non_blocking=True)
        copied = side.record_event()
    if fixed:
        copied.synchronize()
    source.fill_(2.0)
    torch.cuda.current_stream().wait_stream(side)
    return batch * 3


def poisoned_source() -> torch.Tensor:
    return _poisoned_source(False)


def poisoned_source_fixed() -> torch.Tensor:
    return _poisoned_source(True)


def _dropped_wait(fixed: bool) -> torch.Tensor:
    """A consumer on another stream does not wait for the producer."""
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    data = torch.zeros(N, device="cuda")
    out = torch.zeros(N, device="cuda")
    producer.wait_stream(torch.cuda.current_stream())
    consumer.wait_stream(torch.cuda.current_stream())
    ready = torch.cuda.Event()
    with torch.cuda.stream(producer):
        data.add_(1.0)
        ready.record()
    with torch.cuda.stream(consumer):
        if fixed:
            consumer.wait_event(ready)
        out.add_(data)
    torch.cuda.current_stream().wait_stream(producer)
    torch.cuda.current_stream().wait_stream(consumer)
    return out


def dropped_wait() -> torch.Tensor:
    return _dropped_wait(False)


def dropped_wait_fixed() -> torch.Tensor:
    return _dropped_wait(True)


def _graph_input(fixed: bool) -> torch.Tensor:
    """A side stream rewrites a graph's static input while the replay is queued."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    static = torch.ones(N, device="cuda")
    total = torch.zeros(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total.add_(static)
    for value in (2.0, 3.0):
        side.wait_stream(main) if fixed else None
        with torch.cuda.stream(side):
            static.fill_(value)
        main.wait_stream(side)
        graph.replay()
    return total


def graph_input() -> torch.Tensor:
    return _graph_input(False)


def graph_input_fixed() -> torch.Tensor:
    return _graph_input(True)


def _early_read(fixed: bool) -> torch.Tensor:
    """The host reads a pinned destination before the copy has landed."""
    side = torch.cuda.Stream()
    result = torch.full((N,), 7.0, device="cuda")
    landing = torch.zeros(N).pin_memory()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        landing.copy_(result, non_blocking=True)
        landed = side.record_event()
    if fixed:
        landed.synchronize()
    answer = landing + 1
    side.synchronize()
    return answer


def early_read() -> torch.Tensor:
    return _early_read(False)


def early_read_fixed() -> torch.Tensor:
    return _early_read(True)


def _no_record_stream(fixed: bool) -> torch.Tensor:
    """A block is freed, and taken again by its own stream, while another stream reads it."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    data = torch.full((N,), 1.0, device="cuda")
    side.wait_stream(main)
    with torch.cuda.stream(side):
        doubled = data * 2
    if fixed:
        data.record_stream(side)
    del data
    other = torch.full((N,), 5.0, device="cuda")
    main.wait_stream(side)
    return doubled + other


def no_record_stream() -> torch.Tensor:
    return _no_record_stream(False)


def no_record_stream_fixed() -> torch.Tensor:
    return _no_record_stream(True)


def hidden_sync() -> torch.Tensor:
    """A call that nobody sees waits for the device: under a gate it would wait for ever."""
    data = torch.ones(N, device="cuda")
    torch._C._cuda_synchronize()  # type: ignore[attr-defined]
    return data + 1
