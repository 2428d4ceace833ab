"""The edge is there, in the wrong place: a record before the kernel, a wait before the work."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0)


def record_too_early() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(N, device="cuda")
    done = torch.cuda.Event()
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        done.record(side)  # edge: redundant
        x.fill_(1)  # first
    main.wait_event(done)  # edge: redundant
    out.copy_(x)  # second
    return out


def wait_too_early() -> torch.Tensor:
    """wait_stream is a snapshot: what is enqueued afterwards is not covered."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(N, device="cuda")
    main.wait_stream(side)  # edge: redundant
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        x.fill_(1)  # first
    out.copy_(x)  # second
    return out


def in_place() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    done = torch.cuda.Event()
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        x.fill_(1)
        done.record(side)  # edge: load-bearing
    main.wait_event(done)  # edge: load-bearing
    out.copy_(x)
    return out
