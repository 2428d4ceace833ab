"""Pinned buffers are filled and read through NumPy views that were taken once."""

import torch

N = 8
STEPS = 3
SPIN = 1_000_000


def right() -> list[list[float]]:
    return [[2.0 * i] * N for i in range(STEPS)]


def synchronized() -> list[list[float]]:
    source = torch.empty(N, pin_memory=True)
    result = torch.full((N,), -1.0, pin_memory=True)
    device, doubled = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    inputs, outputs = source.numpy(), result.numpy()
    done = torch.cuda.Event()
    seen: list[list[float]] = []
    for i in range(STEPS):
        inputs[:] = i
        torch.cuda._sleep(SPIN)
        device.copy_(source, non_blocking=True)
        torch.mul(device, 2, out=doubled)
        result.copy_(doubled, non_blocking=True)
        done.record()  # edge: load-bearing
        done.synchronize()  # edge: load-bearing
        seen.append(outputs.tolist())
    return seen


def unsynchronized() -> list[list[float]]:
    source = torch.empty(N, pin_memory=True)  # buffer source
    result = torch.full((N,), -1.0, pin_memory=True)  # buffer result
    device, doubled = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    inputs, outputs = source.numpy(), result.numpy()
    seen: list[list[float]] = []
    for i in range(STEPS):
        inputs[:] = i  # second source
        torch.cuda._sleep(SPIN)
        device.copy_(source, non_blocking=True)  # first source
        torch.mul(device, 2, out=doubled)
        result.copy_(doubled, non_blocking=True)  # first result
        seen.append(outputs.tolist())  # second result
    return seen
