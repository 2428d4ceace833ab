"""``.item()`` waits for its stream, and so for whatever else is queued there: an incidental sync.

With it, the event is dead. Without it and without the event, the early read of B05 is back.
"""

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> list[tuple[float, list[float]]]:
    return [(float(i * N), [float(i)] * N) for i in range(STEPS)]


def right_plain() -> list[list[float]]:
    return [[float(i)] * N for i in range(STEPS)]


def covered() -> list[tuple[float, list[float]]]:
    host = torch.full((N,), -1.0, pin_memory=True)
    device = torch.empty(N, device="cuda")
    seen: list[tuple[float, list[float]]] = []
    for i in range(STEPS):
        torch.cuda._sleep(SPIN)
        device.fill_(i)
        host.copy_(device, non_blocking=True)
        copied = torch.cuda.current_stream().record_event()  # edge: redundant
        total = device.sum().item()
        copied.synchronize()  # edge: redundant
        seen.append((total, host.tolist()))
    return seen


def incidental() -> list[tuple[float, list[float]]]:
    """Right today, by accident."""
    host = torch.full((N,), -1.0, pin_memory=True)
    device = torch.empty(N, device="cuda")
    seen: list[tuple[float, list[float]]] = []
    for i in range(STEPS):
        torch.cuda._sleep(SPIN)
        device.fill_(i)
        host.copy_(device, non_blocking=True)
        total = device.sum().item()
        seen.append((total, host.tolist()))
    return seen


def removed() -> list[list[float]]:
    """The next refactor."""
    host = torch.full((N,), -1.0, pin_memory=True)  # buffer
    device = torch.empty(N, device="cuda")
    seen: list[list[float]] = []
    for i in range(STEPS):
        torch.cuda._sleep(SPIN)
        device.fill_(i)
        host.copy_(device, non_blocking=True)  # first
        seen.append(host.tolist())  # second
    return seen
