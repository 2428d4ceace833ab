"""A prefetcher as data loaders have it: one batch ahead, record_stream at the hand-over."""

import torch

N = 8
BATCHES = 4
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(BATCHES)])


class Prefetcher:
    """Uploads the next batch while the current one is used."""

    def __init__(self, batches: list[torch.Tensor], record: bool) -> None:
        self._batches = iter(batches)
        self._record = record
        self._stream = torch.cuda.Stream()
        self._batch: torch.Tensor | None = None
        self._preload()

    def _preload(self) -> None:
        host = next(self._batches, None)
        if host is None:
            self._batch = None
            return
        with torch.cuda.stream(self._stream):
            self._batch = host.to("cuda", non_blocking=True)  # buffer; second

    def next(self) -> torch.Tensor | None:
        current = torch.cuda.current_stream()
        current.wait_stream(self._stream)  # edge: load-bearing
        batch = self._batch
        if batch is not None and self._record:
            batch.record_stream(current)  # edge record: load-bearing
        self._preload()
        return batch


def _consume(record: bool) -> torch.Tensor:
    hosts = [torch.full((N,), float(i), pin_memory=True) for i in range(BATCHES)]
    out = torch.empty(BATCHES, N, device="cuda")
    prefetcher = Prefetcher(hosts, record)
    i = 0
    batch = prefetcher.next()
    while batch is not None:
        torch.cuda._sleep(SPIN)
        out[i].copy_(batch)  # first
        i += 1
        batch = prefetcher.next()
    return out


def recorded() -> torch.Tensor:
    return _consume(record=True)


def unrecorded() -> torch.Tensor:
    return _consume(record=False)
