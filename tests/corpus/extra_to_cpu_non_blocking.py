"""``.to("cpu", non_blocking=True)`` returns pinned memory that is not written yet."""

import torch

N = 8
SPIN = 1_000_000


def right() -> list[float]:
    return [3.0] * N


def read_at_once() -> list[float]:
    device = torch.empty(N, device="cuda")
    torch.cuda._sleep(SPIN)
    device.fill_(3)
    host = device.to("cpu", non_blocking=True)  # buffer; first
    return host.tolist()  # second


def read_after_stream_sync() -> list[float]:
    device = torch.empty(N, device="cuda")
    torch.cuda._sleep(SPIN)
    device.fill_(3)
    host = device.to("cpu", non_blocking=True)
    torch.cuda.current_stream().synchronize()  # edge: load-bearing
    return host.tolist()


def blocking() -> list[float]:
    device = torch.empty(N, device="cuda")
    torch.cuda._sleep(SPIN)
    device.fill_(3)
    host = device.to("cpu")
    torch.cuda.synchronize()  # edge: redundant
    return host.tolist()
