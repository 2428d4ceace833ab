"""A ring of slots inside one pinned block: neighbours share the block and no byte."""

import torch

N = 8
STEPS = 4
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(STEPS)])


def slots() -> torch.Tensor:
    ring = torch.empty(2, N, pin_memory=True)
    out = torch.empty(STEPS, N, device="cuda")
    copied = [torch.cuda.Event(), torch.cuda.Event()]
    for i in range(STEPS):
        if i >= 2:
            copied[i % 2].synchronize()  # edge: load-bearing
        ring[i % 2].fill_(i)
        torch.cuda._sleep(SPIN)
        out[i].copy_(ring[i % 2], non_blocking=True)
        copied[i % 2].record()  # edge: load-bearing
    return out


def one_step_late() -> torch.Tensor:
    """The wait begins with the fourth step; the third rewrites a slot."""
    ring = torch.empty(2, N, pin_memory=True)  # buffer
    out = torch.empty(STEPS, N, device="cuda")
    copied = [torch.cuda.Event(), torch.cuda.Event()]
    for i in range(STEPS):
        if i >= 3:
            copied[i % 2].synchronize()  # edge: load-bearing
        ring[i % 2].fill_(i)  # second
        torch.cuda._sleep(SPIN)
        out[i].copy_(ring[i % 2], non_blocking=True)  # first
        copied[i % 2].record()  # edge: load-bearing
    return out
