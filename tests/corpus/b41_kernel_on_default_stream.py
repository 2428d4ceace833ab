"""B41: an operator that was given no stream takes the default one instead of the current one.

``paged`` is why "move everything to the current stream" is no fix: its prefetch is on the default
stream, so its kernel belongs there, too.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 2.0)


def buggy() -> torch.Tensor:
    side = torch.cuda.Stream()
    a = torch.empty(N, device="cuda")  # buffer a
    b = torch.empty(N, device="cuda")  # buffer b
    out = torch.empty(N, device="cuda")
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        a.fill_(1)  # first a
        with torch.cuda.stream(torch.cuda.default_stream()):
            torch.add(a, 1, out=b)  # second a; first b
        out.copy_(b)  # second b
        return out.cpu()


def fixed() -> torch.Tensor:
    side = torch.cuda.Stream()
    a, b, out = (torch.empty(N, device="cuda") for _ in range(3))
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        a.fill_(1)
        torch.add(a, 1, out=b)
        out.copy_(b)
        return out.cpu()


def paged() -> torch.Tensor:
    default, side = torch.cuda.default_stream(), torch.cuda.Stream()
    host = torch.full((N,), 1.0, pin_memory=True)
    state, b, out = (torch.empty(N, device="cuda") for _ in range(3))
    with torch.cuda.stream(default):
        torch.cuda._sleep(SPIN)
        state.copy_(host, non_blocking=True)
    with torch.cuda.stream(side):
        with torch.cuda.stream(default):
            torch.add(state, 1, out=b)
        side.wait_stream(default)  # edge: load-bearing
        out.copy_(b)
        return out.cpu()


def paged_moved() -> torch.Tensor:
    default, side = torch.cuda.default_stream(), torch.cuda.Stream()
    host = torch.full((N,), 1.0, pin_memory=True)
    state = torch.empty(N, device="cuda")  # buffer
    b, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    with torch.cuda.stream(default):
        torch.cuda._sleep(SPIN)
        state.copy_(host, non_blocking=True)  # first
    with torch.cuda.stream(side):
        torch.add(state, 1, out=b)  # second
        out.copy_(b)
        return out.cpu()
