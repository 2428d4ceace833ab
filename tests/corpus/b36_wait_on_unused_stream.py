"""B36: the load stream waits for the forward pass, but the copies are not on the load stream.

``write_back`` needs both directions: the store waits for the writes, and the next round for the
store.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((N,), 1.0), torch.full((N,), 2.0)


def right_write_back() -> list[list[float]]:
    return [[0.0] * N, [1.0] * N]


def buggy() -> tuple[torch.Tensor, torch.Tensor]:
    main, forward, load = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    host = torch.full((N,), 2.0, pin_memory=True)
    kv = torch.empty(N, device="cuda")  # buffer
    out_a, out_b = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    kv.fill_(1)
    forward.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(forward):
        torch.cuda._sleep(SPIN)
        out_a.copy_(kv)  # first
    load.wait_stream(forward)  # edge: redundant
    kv.copy_(host, non_blocking=True)  # second
    forward.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(forward):
        out_b.copy_(kv)
        return out_a.cpu(), out_b.cpu()


def fixed() -> tuple[torch.Tensor, torch.Tensor]:
    main, forward, load = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    host = torch.full((N,), 2.0, pin_memory=True)
    kv = torch.empty(N, device="cuda")
    out_a, out_b = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    kv.fill_(1)
    forward.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(forward):
        torch.cuda._sleep(SPIN)
        out_a.copy_(kv)
    load.wait_stream(forward)  # edge: load-bearing
    with torch.cuda.stream(load):
        kv.copy_(host, non_blocking=True)
    forward.wait_stream(load)  # edge: load-bearing
    with torch.cuda.stream(forward):
        out_b.copy_(kv)
        return out_a.cpu(), out_b.cpu()


def write_back() -> list[list[float]]:
    forward, store = torch.cuda.current_stream(), torch.cuda.Stream()
    kv = torch.empty(N, device="cuda")
    host = torch.full((2, N), -1.0, pin_memory=True)
    for i in range(2):
        kv.fill_(i)
        store.wait_stream(forward)  # edge: load-bearing
        with torch.cuda.stream(store):
            torch.cuda._sleep(SPIN)
            host[i].copy_(kv, non_blocking=True)
        forward.wait_stream(store)  # edge: load-bearing
    store.synchronize()  # edge: load-bearing
    return host.tolist()
