"""torch.cuda.synchronize() alive, doubled, and before there is anything to wait for."""

import torch

N = 8
SPIN = 1_000_000


def right() -> list[float]:
    return [4.0] * N


def alive() -> list[float]:
    side = torch.cuda.Stream()
    host = torch.full((N,), -1.0, pin_memory=True)
    device = torch.empty(N, device="cuda")
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        device.fill_(4)
        host.copy_(device, non_blocking=True)
    torch.cuda.synchronize()  # edge: load-bearing
    return host.tolist()


def doubled() -> list[float]:
    side = torch.cuda.Stream()
    host = torch.full((N,), -1.0, pin_memory=True)
    device = torch.empty(N, device="cuda")
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        device.fill_(4)
        host.copy_(device, non_blocking=True)
    side.synchronize()  # edge stream: masked
    torch.cuda.synchronize()  # edge device: masked
    return host.tolist()


def too_early() -> list[float]:
    side = torch.cuda.Stream()
    host = torch.full((N,), -1.0, pin_memory=True)
    device = torch.empty(N, device="cuda")
    torch.cuda.synchronize()  # edge: redundant
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        device.fill_(4)
        host.copy_(device, non_blocking=True)
    side.synchronize()  # edge: load-bearing
    return host.tolist()


def wrong_stream() -> list[float]:
    """The stream that is awaited is not the one that copies."""
    side = torch.cuda.Stream()
    host = torch.full((N,), -1.0, pin_memory=True)  # buffer
    device = torch.empty(N, device="cuda")
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        device.fill_(4)
        host.copy_(device, non_blocking=True)  # first
    torch.cuda.current_stream().synchronize()  # edge: redundant
    return host.tolist()  # second
