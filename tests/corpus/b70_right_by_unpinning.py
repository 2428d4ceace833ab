"""B70: instead of a sync, the reused host buffer is no longer pinned.

A pageable source is consumed before the call returns. The same lines with a pinned buffer are B21.
"""

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right(pin: bool) -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(STEPS)])


def staging(pin: bool = False) -> torch.Tensor:
    host = torch.empty(N, pin_memory=pin)  # buffer
    device = torch.empty(N, device="cuda")
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        host.fill_(i)  # second
        torch.cuda._sleep(SPIN)
        device.copy_(host, non_blocking=True)  # first
        out[i].copy_(device)
    return out
