"""The usual pair: the side stream waits for the current one, and the current one for the side."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 2.0)


def needed() -> torch.Tensor:
    side = torch.cuda.Stream()
    x, y, out = (torch.empty(N, device="cuda") for _ in range(3))
    x.fill_(1)
    side.wait_stream(torch.cuda.current_stream())  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        torch.add(x, 1, out=y)
    torch.cuda.current_stream().wait_stream(side)  # edge: load-bearing
    out.copy_(y)
    x.fill_(9)
    return out


def first_dead() -> torch.Tensor:
    """The side stream makes its own input."""
    side = torch.cuda.Stream()
    x, y, out = (torch.empty(N, device="cuda") for _ in range(3))
    side.wait_stream(torch.cuda.current_stream())  # edge: redundant
    with torch.cuda.stream(side):
        x.fill_(1)
        torch.cuda._sleep(SPIN)
        torch.add(x, 1, out=y)
    torch.cuda.current_stream().wait_stream(side)  # edge: load-bearing
    out.copy_(y)
    return out


def second_missing() -> torch.Tensor:
    side = torch.cuda.Stream()
    x = torch.empty(N, device="cuda")
    y = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(N, device="cuda")
    x.fill_(1)
    side.wait_stream(torch.cuda.current_stream())  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        torch.add(x, 1, out=y)  # first
    out.copy_(y)  # second
    return out
