"""A host that polls a stream."""

import torch

N = 8
SPIN = 1_000_000


def right() -> list[float]:
    return [2.0] * N


def polled() -> list[float]:
    side = torch.cuda.Stream()
    device = torch.empty(N, device="cuda")
    host = torch.full((N,), -1.0, pin_memory=True)
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        device.fill_(2)
        host.copy_(device, non_blocking=True)
    while not side.query():
        pass
    return host.tolist()


def wrong_stream() -> list[float]:
    side = torch.cuda.Stream()
    device = torch.empty(N, device="cuda")
    host = torch.full((N,), -1.0, pin_memory=True)  # buffer
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        device.fill_(2)
        host.copy_(device, non_blocking=True)  # first
    while not torch.cuda.current_stream().query():
        pass
    return host.tolist()  # second
