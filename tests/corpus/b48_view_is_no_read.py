"""B48: false alarms. A view of a pinned result is no read of it; bytes are read after the sync."""

import torch

N = 8
SPIN = 1_000_000


def right() -> list[float]:
    return [float(i) for i in range(N)]


def unbind() -> list[float]:
    stream = torch.cuda.Stream()
    host = torch.full((N,), -1.0, pin_memory=True)
    device = torch.empty(N, device="cuda")
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SPIN)
        torch.arange(N, dtype=torch.float32, out=device)
        host.copy_(device, non_blocking=True)
    copied = stream.record_event()  # edge: load-bearing
    values = host.unbind()
    copied.synchronize()  # edge: load-bearing
    return [value.item() for value in values]


def tolist() -> list[float]:
    """The twin that does read."""
    stream = torch.cuda.Stream()
    host = torch.full((N,), -1.0, pin_memory=True)  # buffer
    device = torch.empty(N, device="cuda")
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SPIN)
        torch.arange(N, dtype=torch.float32, out=device)
        host.copy_(device, non_blocking=True)  # first
    copied = stream.record_event()  # edge: redundant
    values = host.tolist()  # second
    copied.synchronize()  # edge: redundant
    return values


def numpy_view() -> list[float]:
    stream = torch.cuda.Stream()
    host = torch.full((N,), -1.0, pin_memory=True)
    device = torch.empty(N, device="cuda")
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SPIN)
        torch.arange(N, dtype=torch.float32, out=device)
        host.copy_(device, non_blocking=True)
    copied = stream.record_event()  # edge: load-bearing
    head, tail = host[:4].numpy(), host.view(2, 4)[1].numpy()
    copied.synchronize()  # edge: load-bearing
    return [*head.tolist(), *tail.tolist()]


class Result:
    """An asynchronous result whose getters wait before they expose the bytes."""

    def __init__(self, device: torch.Tensor) -> None:
        self._host = torch.full((N,), -1.0, pin_memory=True)
        self._host.copy_(device, non_blocking=True)
        self._copied = torch.cuda.Event()
        self._copied.record()  # edge: load-bearing

    def __getitem__(self, index: int) -> float:
        self._copied.synchronize()  # edge: load-bearing
        return self._host[index].item()


def getter() -> list[float]:
    stream = torch.cuda.Stream()
    device = torch.empty(N, device="cuda")
    with torch.cuda.stream(stream):
        torch.cuda._sleep(SPIN)
        torch.arange(N, dtype=torch.float32, out=device)
        result = Result(device)
    return [result[i] for i in range(N)]
