"""B66: ranks are threads, and the thread of rank 0 moves everybody's data on its current stream.

Host barriers are right; streams need two edges each way: every rank's record is awaited by rank 0,
and rank 0's record by every rank.
"""

import threading

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> list[torch.Tensor]:
    sums = torch.stack([torch.full((N,), 11.0 * i + 1) for i in range(STEPS)])
    return [sums, sums]


def buggy() -> list[torch.Tensor]:
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    inputs = [torch.empty(N, device="cuda") for _ in range(2)]  # buffer in
    sums = [torch.empty(N, device="cuda") for _ in range(2)]  # buffer out
    results = torch.empty(2, STEPS, N, device="cuda")
    barrier = threading.Barrier(2)

    def rank1() -> None:
        with torch.cuda.stream(streams[1]):
            for i in range(STEPS):
                torch.cuda._sleep(SPIN)
                inputs[1].fill_(10 * i + 1)  # first in
                barrier.wait()
                barrier.wait()
                results[1, i].copy_(sums[1])  # second out

    thread = threading.Thread(target=rank1)
    thread.start()
    with torch.cuda.stream(streams[0]):
        for i in range(STEPS):
            inputs[0].fill_(i)
            barrier.wait()
            for rank in range(2):
                torch.add(inputs[0], inputs[1], out=sums[rank])  # second in; first out
            barrier.wait()
            results[0, i].copy_(sums[0])
    thread.join()
    return _read(streams, results)


def fixed() -> list[torch.Tensor]:
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    inputs = [torch.empty(N, device="cuda") for _ in range(2)]
    sums = [torch.empty(N, device="cuda") for _ in range(2)]
    results = torch.empty(2, STEPS, N, device="cuda")
    barrier = threading.Barrier(2)
    arrived: list[torch.cuda.Event] = []
    done: list[torch.cuda.Event] = []

    def rank1() -> None:
        with torch.cuda.stream(streams[1]):
            for i in range(STEPS):
                torch.cuda._sleep(SPIN)
                inputs[1].fill_(10 * i + 1)
                arrived.append(streams[1].record_event())  # edge: load-bearing
                barrier.wait()
                barrier.wait()
                streams[1].wait_event(done[i])  # edge: load-bearing
                results[1, i].copy_(sums[1])

    thread = threading.Thread(target=rank1)
    thread.start()
    with torch.cuda.stream(streams[0]):
        for i in range(STEPS):
            inputs[0].fill_(i)
            barrier.wait()
            streams[0].wait_event(arrived[i])  # edge: load-bearing
            for rank in range(2):
                torch.add(inputs[0], inputs[1], out=sums[rank])
            done.append(streams[0].record_event())  # edge: load-bearing
            barrier.wait()
            results[0, i].copy_(sums[0])
    thread.join()
    return _read(streams, results)


def _read(streams: list[torch.cuda.Stream], results: torch.Tensor) -> list[torch.Tensor]:
    """What each rank got, read on its own stream."""
    read: list[torch.Tensor] = []
    for rank, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            read.append(results[rank].cpu())
    return read
