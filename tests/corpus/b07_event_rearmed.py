"""B07: one event is recorded again before the wait that was meant for its first record.

Bytes are right, because the later record covers the earlier work; the copy waits for too much. With
two ranks this hangs. Either record alone is enough for the bytes, so each masks the other.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> list[float]:
    return [0.0] * N


def right_both() -> list[list[float]]:
    return [[0.0] * N, [1.0] * N]


def buggy() -> list[float]:
    forward, copy = torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty(2, N, device="cuda")
    host = torch.full((N,), -1.0, pin_memory=True)
    read_done = torch.cuda.Event()
    out[0].fill_(0)
    read_done.record(forward)  # edge first: masked
    torch.cuda._sleep(SPIN)
    out[1].fill_(1)
    read_done.record(forward)  # edge again: masked; diag: event-rearmed
    copy.wait_event(read_done)  # edge: load-bearing; diag: event-rearmed
    with torch.cuda.stream(copy):
        host.copy_(out[0], non_blocking=True)
    copy.synchronize()  # edge: load-bearing
    return host.tolist()


def fixed() -> list[list[float]]:
    """One event per step in flight."""
    forward, copy = torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty(2, N, device="cuda")
    host = torch.full((2, N), -1.0, pin_memory=True)
    read_done = [torch.cuda.Event(), torch.cuda.Event()]
    for i in range(2):
        torch.cuda._sleep(SPIN)
        out[i].fill_(i)
        read_done[i].record(forward)  # edge: load-bearing
    for i in range(2):
        copy.wait_event(read_done[i])  # edge: load-bearing
        with torch.cuda.stream(copy):
            host[i].copy_(out[i], non_blocking=True)
    copy.synchronize()  # edge: load-bearing
    return host.tolist()
