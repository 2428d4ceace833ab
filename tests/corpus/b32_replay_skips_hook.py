"""B32: a hook that waits for a layer's KV is host code, and a replay does not run it."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 5.0)


def eager() -> torch.Tensor:
    forward, load = torch.cuda.current_stream(), torch.cuda.Stream()
    host = torch.full((N,), 5.0, pin_memory=True)
    kv, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    pending: list[torch.cuda.Event] = []

    def hook() -> None:
        for loaded in pending:
            forward.wait_event(loaded)  # edge: load-bearing

    with torch.cuda.stream(load):
        torch.cuda._sleep(SPIN)
        kv.copy_(host, non_blocking=True)
        loaded = load.record_event()  # edge: load-bearing
        pending.append(loaded)
    hook()
    out.copy_(kv)
    return out


def buggy() -> torch.Tensor:
    load = torch.cuda.Stream()
    host = torch.full((N,), 5.0, pin_memory=True)
    kv = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(N, device="cuda")
    pending: list[torch.cuda.Event] = []

    def hook() -> None:
        for loaded in pending:  # none at the time of the capture
            torch.cuda.current_stream().wait_event(loaded)  # edge: absent

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        hook()
        out.copy_(kv)  # second
    with torch.cuda.stream(load):
        torch.cuda._sleep(SPIN)
        kv.copy_(host, non_blocking=True)  # first
        loaded = load.record_event()  # edge: redundant; diag: event-without-waiter
        pending.append(loaded)
    graph.replay()  # second
    return out


def fixed() -> torch.Tensor:
    load = torch.cuda.Stream()
    host = torch.full((N,), 5.0, pin_memory=True)
    kv, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    pending: list[torch.cuda.Event] = []

    def hook() -> None:
        for loaded in pending:
            torch.cuda.current_stream().wait_event(loaded)  # edge: load-bearing

    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.copy_(kv)
    with torch.cuda.stream(load):
        torch.cuda._sleep(SPIN)
        kv.copy_(host, non_blocking=True)
        loaded = load.record_event()  # edge: load-bearing
        pending.append(loaded)
    hook()
    graph.replay()
    return out
