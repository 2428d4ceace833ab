"""A host that polls an event, and one that looks once and acts on the answer."""

import torch

N = 8
SPIN = 1_000_000


def right() -> list[float]:
    return [6.0] * N


def polled() -> list[float]:
    host = torch.full((N,), -1.0, pin_memory=True)
    device = torch.empty(N, device="cuda")
    torch.cuda._sleep(SPIN)
    device.fill_(6)
    host.copy_(device, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()  # edge: load-bearing
    while not copied.query():
        pass
    return host.tolist()


def looked_once() -> list[float]:
    """No byte is read too early, but what comes out depends on the device's progress."""
    host = torch.full((N,), -1.0, pin_memory=True)
    device = torch.empty(N, device="cuda")
    torch.cuda._sleep(SPIN)
    device.fill_(6)
    host.copy_(device, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()  # edge: load-bearing
    return host.tolist() if copied.query() else []


def looked_once_then_waited() -> list[float]:
    """Either answer leads to the same bytes."""
    host = torch.full((N,), -1.0, pin_memory=True)
    device = torch.empty(N, device="cuda")
    torch.cuda._sleep(SPIN)
    device.fill_(6)
    host.copy_(device, non_blocking=True)
    copied = torch.cuda.Event()
    copied.record()  # edge: load-bearing
    if not copied.query():
        copied.synchronize()  # edge: any
    return host.tolist()
