"""B25: a device-wide synchronize on a path that stays on one stream orders nothing.

The twins differ in one thing each, and need it: a copy on another stream, a result that the host
reads.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 5.0)


def right_host() -> list[float]:
    return [5.0] * N


def dead() -> torch.Tensor:
    host = torch.full((N,), 5.0, pin_memory=True)
    weights, sent, back = (torch.empty(N, device="cuda") for _ in range(3))
    weights.copy_(host, non_blocking=True)
    torch.cuda._sleep(SPIN)
    sent.copy_(weights)
    torch.cuda.synchronize()  # edge: redundant
    back.copy_(sent)
    return back


def twin_copy_stream() -> torch.Tensor:
    main, copy = torch.cuda.current_stream(), torch.cuda.Stream()
    host = torch.full((N,), 5.0, pin_memory=True)
    weights, sent, back = (torch.empty(N, device="cuda") for _ in range(3))
    weights.copy_(host, non_blocking=True)
    copy.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(copy):
        torch.cuda._sleep(SPIN)
        sent.copy_(weights)
    torch.cuda.synchronize()  # edge: load-bearing
    back.copy_(sent)
    return back


def twin_host_read() -> list[float]:
    host = torch.full((N,), 5.0, pin_memory=True)
    result = torch.full((N,), -1.0, pin_memory=True)
    weights = torch.empty(N, device="cuda")
    weights.copy_(host, non_blocking=True)
    torch.cuda._sleep(SPIN)
    result.copy_(weights, non_blocking=True)
    torch.cuda.synchronize()  # edge: load-bearing
    return result.tolist()
