"""Order is transitive: a direct wait beside a chain that is needed anyway is dead."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 2.0)


def direct_and_chain() -> torch.Tensor:
    last, first, middle = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    x, y, out = (torch.empty(N, device="cuda") for _ in range(3))
    x_done, y_done = torch.cuda.Event(), torch.cuda.Event()
    with torch.cuda.stream(first):
        torch.cuda._sleep(SPIN)
        x.fill_(1)
        x_done.record(first)  # edge: load-bearing
    middle.wait_event(x_done)  # edge: load-bearing
    with torch.cuda.stream(middle):
        y.copy_(x)
        y_done.record(middle)  # edge: load-bearing
    last.wait_event(x_done)  # edge: redundant
    last.wait_event(y_done)  # edge: load-bearing
    torch.add(x, y, out=out)
    return out


def chain_only() -> torch.Tensor:
    last, first, middle = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    x, y, out = (torch.empty(N, device="cuda") for _ in range(3))
    with torch.cuda.stream(first):
        torch.cuda._sleep(SPIN)
        x.fill_(1)
    middle.wait_stream(first)  # edge: load-bearing
    with torch.cuda.stream(middle):
        y.copy_(x)
    last.wait_stream(middle)  # edge: load-bearing
    torch.add(x, y, out=out)
    return out
