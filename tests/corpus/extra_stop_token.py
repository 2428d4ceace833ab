"""A decode loop whose host reads each token to decide whether to go on."""

import torch

STOP = 3
LIMIT = 4
SPIN = 1_000_000


def right() -> list[int]:
    return [1, 2, 3]


def synchronized() -> list[int]:
    token = torch.zeros(1, dtype=torch.int64, device="cuda")
    host = torch.zeros(1, dtype=torch.int64, pin_memory=True)
    copied = torch.cuda.Event()
    seen: list[int] = []
    while len(seen) < LIMIT and (not seen or seen[-1] != STOP):
        torch.cuda._sleep(SPIN)
        token.add_(1)
        host.copy_(token, non_blocking=True)
        copied.record()  # edge: load-bearing
        copied.synchronize()  # edge: load-bearing
        seen.append(int(host[0]))
    return seen


def unsynchronized() -> list[int]:
    token = torch.zeros(1, dtype=torch.int64, device="cuda")
    host = torch.zeros(1, dtype=torch.int64, pin_memory=True)  # buffer
    seen: list[int] = []
    while len(seen) < LIMIT and (not seen or seen[-1] != STOP):
        torch.cuda._sleep(SPIN)
        token.add_(1)
        host.copy_(token, non_blocking=True)  # first
        seen.append(int(host[0]))  # second
    return seen
