"""B05: the host reads a pinned copy of device data without waiting for the copy."""

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> list[list[float]]:
    return [[float(i)] * N for i in range(STEPS)]


def buggy() -> list[list[float]]:
    stream = torch.cuda.Stream()
    device = torch.empty(N, device="cuda")
    host = torch.full((N,), -1.0, pin_memory=True)  # buffer
    seen: list[list[float]] = []
    for i in range(STEPS):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SPIN)
            device.fill_(i)
            host.copy_(device, non_blocking=True)  # first
        seen.append(host.tolist())  # second
    return seen


def buggy_numpy() -> list[list[float]]:
    stream = torch.cuda.Stream()
    device = torch.empty(N, device="cuda")
    host = torch.full((N,), -1.0, pin_memory=True)  # buffer
    view = host.numpy()
    seen: list[list[float]] = []
    for i in range(STEPS):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SPIN)
            device.fill_(i)
            host.copy_(device, non_blocking=True)  # first
        seen.append(view.tolist())  # second
    return seen


def buggy_clone() -> list[list[float]]:
    stream = torch.cuda.Stream()
    device = torch.empty(N, device="cuda")
    host = torch.full((N,), -1.0, pin_memory=True)  # buffer
    kept: list[torch.Tensor] = []
    for i in range(STEPS):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SPIN)
            device.fill_(i)
            host.copy_(device, non_blocking=True)  # first
        kept.append(host.clone())  # second
    stream.synchronize()  # edge: redundant
    return [tensor.tolist() for tensor in kept]


def fixed() -> list[list[float]]:
    stream = torch.cuda.Stream()
    device = torch.empty(N, device="cuda")
    host = torch.full((N,), -1.0, pin_memory=True)
    seen: list[list[float]] = []
    for i in range(STEPS):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SPIN)
            device.fill_(i)
            host.copy_(device, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record(stream)  # edge: load-bearing
        copied.synchronize()  # edge: load-bearing
        seen.append(host.tolist())
    return seen


def covered() -> list[list[float]]:
    """Two host waits for one copy: each looks dead alone."""
    stream = torch.cuda.Stream()
    device = torch.empty(N, device="cuda")
    host = torch.full((N,), -1.0, pin_memory=True)
    seen: list[list[float]] = []
    for i in range(STEPS):
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SPIN)
            device.fill_(i)
            host.copy_(device, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record(stream)  # edge record: masked
        copied.synchronize()  # edge event: masked
        torch.cuda.synchronize()  # edge device: masked
        seen.append(host.tolist())
    return seen
