"""Tokens are read back one step late through two pinned buffers; collapsed to one, they mix."""

import torch

N = 8
STEPS = 4
SPIN = 1_000_000


def right() -> list[list[float]]:
    return [[float(i)] * N for i in range(STEPS)]


def two() -> list[list[float]]:
    compute, copy = torch.cuda.current_stream(), torch.cuda.Stream()
    device = torch.empty(STEPS, N, device="cuda")
    hosts = [torch.full((N,), -1.0, pin_memory=True) for _ in range(2)]
    copied = [torch.cuda.Event(), torch.cuda.Event()]
    seen: list[list[float]] = []
    for i in range(STEPS):
        torch.cuda._sleep(SPIN)
        device[i].fill_(i)
        copy.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(copy):
            hosts[i % 2].copy_(device[i], non_blocking=True)
            copied[i % 2].record(copy)  # edge: load-bearing
        if i > 0:
            copied[(i - 1) % 2].synchronize()  # edge: load-bearing
            seen.append(hosts[(i - 1) % 2].tolist())
    copied[(STEPS - 1) % 2].synchronize()  # edge: load-bearing
    seen.append(hosts[(STEPS - 1) % 2].tolist())
    return seen


def collapsed() -> list[list[float]]:
    compute, copy = torch.cuda.current_stream(), torch.cuda.Stream()
    device = torch.empty(STEPS, N, device="cuda")
    host = torch.full((N,), -1.0, pin_memory=True)  # buffer
    copied = [torch.cuda.Event(), torch.cuda.Event()]
    seen: list[list[float]] = []
    for i in range(STEPS):
        torch.cuda._sleep(SPIN)
        device[i].fill_(i)
        copy.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(copy):
            host.copy_(device[i], non_blocking=True)  # first
            copied[i % 2].record(copy)  # edge: load-bearing
        if i > 0:
            copied[(i - 1) % 2].synchronize()  # edge: load-bearing
            seen.append(host.tolist())  # second
    copied[(STEPS - 1) % 2].synchronize()  # edge: load-bearing
    seen.append(host.tolist())
    return seen
