"""B21: one pinned table is rewritten in place while the last copy from it is pending.

The fix has no sync call at all: a fresh pinned block each step, which the host allocator keeps
until the copy is done.
"""

import torch

N = 8
STEPS = 3
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(STEPS)])


def buggy() -> torch.Tensor:
    table = torch.empty(N, pin_memory=True)  # buffer
    device = torch.empty(N, device="cuda")
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        table.fill_(i)  # second
        torch.cuda._sleep(SPIN)
        device.copy_(table, non_blocking=True)  # first
        out[i].copy_(device)
    return out


def fixed_fresh() -> torch.Tensor:
    device = torch.empty(N, device="cuda")
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        table = torch.empty(N, pin_memory=True)
        table.fill_(i)
        torch.cuda._sleep(SPIN)
        device.copy_(table, non_blocking=True)
        out[i].copy_(device)
        del table
    return out


def fixed_event() -> torch.Tensor:
    table = torch.empty(N, pin_memory=True)
    device = torch.empty(N, device="cuda")
    out = torch.empty(STEPS, N, device="cuda")
    copied = torch.cuda.Event()
    for i in range(STEPS):
        if i > 0:
            copied.synchronize()  # edge: load-bearing
        table.fill_(i)
        torch.cuda._sleep(SPIN)
        device.copy_(table, non_blocking=True)
        copied.record()  # edge: load-bearing
        out[i].copy_(device)
    return out
