"""Races that no byte of the output depends on: dead rows, equal values. Listed, not refuted."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0)


def dead_row() -> torch.Tensor:
    """A row is read too early, and nobody looks at where it goes."""
    side = torch.cuda.Stream()
    x, padding, out = (torch.empty(N, device="cuda") for _ in range(3))
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        x.fill_(7)
    padding.copy_(x)
    out.fill_(1)
    side.synchronize()  # edge: redundant
    return out


def equal_values() -> torch.Tensor:
    """The side stream writes what is there already."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    x.fill_(1)
    side.wait_stream(main)  # edge: redundant
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        x.fill_(1)
    main.wait_stream(side)  # edge: redundant
    out.copy_(x)
    return out
