"""B72: one pinned buffer stages the key and then the value; stream order does not protect it."""

import torch

N = 8
SPIN = 1_000_000


def right() -> list[torch.Tensor]:
    return [torch.full((N,), 1.0), torch.full((N,), 2.0)]


def buggy() -> list[torch.Tensor]:
    staging = torch.empty(N, pin_memory=True)  # buffer
    key, value = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    torch.cuda._sleep(SPIN)
    staging.fill_(1)
    key.copy_(staging, non_blocking=True)  # first
    staging.fill_(2)  # second
    value.copy_(staging, non_blocking=True)
    return [key, value]


def fixed_two_buffers() -> list[torch.Tensor]:
    staging = [torch.empty(N, pin_memory=True), torch.empty(N, pin_memory=True)]
    key, value = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    torch.cuda._sleep(SPIN)
    staging[0].fill_(1)
    key.copy_(staging[0], non_blocking=True)
    staging[1].fill_(2)
    value.copy_(staging[1], non_blocking=True)
    return [key, value]


def fixed_sync() -> list[torch.Tensor]:
    staging = torch.empty(N, pin_memory=True)
    key, value = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    torch.cuda._sleep(SPIN)
    staging.fill_(1)
    key.copy_(staging, non_blocking=True)
    torch.cuda.current_stream().synchronize()  # edge: load-bearing
    staging.fill_(2)
    value.copy_(staging, non_blocking=True)
    return [key, value]
