"""B04: a freed KV block is the destination of a load while the last attention still reads it.

``both`` has the store of B03 and the load of B04 behind one event: two waits, each needed.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> list[torch.Tensor]:
    return [torch.full((N,), 1.0), torch.full((N,), 2.0)]


def right_both() -> tuple[list[float], torch.Tensor]:
    return [1.0] * N, torch.tensor([[1.0] * N, [2.0] * N, [2.0] * N])


def buggy() -> list[torch.Tensor]:
    compute, load = torch.cuda.current_stream(), torch.cuda.Stream()
    hosts = [torch.full((N,), 1.0, pin_memory=True), torch.full((N,), 2.0, pin_memory=True)]
    kv = torch.empty(N, device="cuda")  # buffer
    out_a, out_b = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    with torch.cuda.stream(load):
        kv.copy_(hosts[0], non_blocking=True)
    compute.wait_stream(load)  # edge: load-bearing
    torch.cuda._sleep(SPIN)
    out_a.copy_(kv)  # first
    with torch.cuda.stream(load):
        kv.copy_(hosts[1], non_blocking=True)  # second
    compute.wait_stream(load)  # edge: load-bearing
    out_b.copy_(kv)
    return [out_a, out_b]


def fixed() -> list[torch.Tensor]:
    compute, load = torch.cuda.current_stream(), torch.cuda.Stream()
    hosts = [torch.full((N,), 1.0, pin_memory=True), torch.full((N,), 2.0, pin_memory=True)]
    kv = torch.empty(N, device="cuda")
    out_a, out_b = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    with torch.cuda.stream(load):
        kv.copy_(hosts[0], non_blocking=True)
    compute.wait_stream(load)  # edge: load-bearing
    torch.cuda._sleep(SPIN)
    out_a.copy_(kv)
    used = torch.cuda.Event()
    used.record(compute)  # edge: load-bearing
    load.wait_event(used)  # edge: load-bearing
    with torch.cuda.stream(load):
        kv.copy_(hosts[1], non_blocking=True)
    compute.wait_stream(load)  # edge: load-bearing
    out_b.copy_(kv)
    return [out_a, out_b]


def both() -> tuple[list[float], torch.Tensor]:
    compute = torch.cuda.current_stream()
    store, load = torch.cuda.Stream(), torch.cuda.Stream()
    host_in = torch.full((N,), 2.0, pin_memory=True)
    host_out = torch.empty(N, pin_memory=True)
    kv = torch.empty(2, N, device="cuda")
    out = torch.empty(3, N, device="cuda")
    kv.fill_(1)
    torch.cuda._sleep(SPIN)
    out[0].copy_(kv[1])
    used = torch.cuda.Event()
    used.record(compute)  # edge: load-bearing
    store.wait_event(used)  # edge: load-bearing
    with torch.cuda.stream(store):
        host_out.copy_(kv[0], non_blocking=True)
    stored = torch.cuda.Event()
    stored.record(store)  # edge: load-bearing
    load.wait_event(used)  # edge: load-bearing
    with torch.cuda.stream(load):
        kv[1].copy_(host_in, non_blocking=True)
    load.wait_event(stored)  # edge: load-bearing
    with torch.cuda.stream(load):
        kv[0].copy_(host_in, non_blocking=True)
    compute.wait_stream(load)  # edge: load-bearing
    out[1:].copy_(kv)
    store.synchronize()  # edge: load-bearing
    return host_out.tolist(), out
