"""B64: a batch allocated on the prefetch stream is dropped by its consumer with reads queued."""

from collections.abc import Iterator

import torch

N = 8
BATCHES = 3
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(BATCHES)])


class Unordered:
    """A prefetching loader. Nothing tells the prefetch stream when the consumer is done."""

    def __init__(self, batches: list[torch.Tensor]) -> None:
        self._batches = batches
        self._stream = torch.cuda.Stream()

    def __iter__(self) -> Iterator[torch.Tensor]:
        for host in self._batches:
            with torch.cuda.stream(self._stream):
                batch = host.to("cuda", non_blocking=True)  # buffer; second
            torch.cuda.current_stream().wait_stream(self._stream)  # edge: load-bearing
            yield batch
            del batch


class Ordered:
    """The fix: the prefetch stream waits for the consumer once per batch."""

    def __init__(self, batches: list[torch.Tensor]) -> None:
        self._batches = batches
        self._stream = torch.cuda.Stream()

    def __iter__(self) -> Iterator[torch.Tensor]:
        for host in self._batches:
            with torch.cuda.stream(self._stream):
                batch = host.to("cuda", non_blocking=True)
            torch.cuda.current_stream().wait_stream(self._stream)  # edge: load-bearing
            yield batch
            self._stream.wait_stream(torch.cuda.current_stream())  # edge: load-bearing
            del batch


def buggy() -> torch.Tensor:
    hosts = [torch.full((N,), float(i), pin_memory=True) for i in range(BATCHES)]
    out = torch.empty(BATCHES, N, device="cuda")
    for i, batch in enumerate(Unordered(hosts)):
        torch.cuda._sleep(SPIN)
        out[i].copy_(batch)  # first
        del batch
    return out


def fixed() -> torch.Tensor:
    hosts = [torch.full((N,), float(i), pin_memory=True) for i in range(BATCHES)]
    out = torch.empty(BATCHES, N, device="cuda")
    for i, batch in enumerate(Ordered(hosts)):
        torch.cuda._sleep(SPIN)
        out[i].copy_(batch)
        del batch
    return out
