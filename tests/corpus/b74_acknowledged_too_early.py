"""B74: a shared bucket is acknowledged by one reader for all of them; the sender overwrites it.

The reports have processes; here each reader is a stream. Every reader's acknowledgement counts.
"""

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> list[torch.Tensor]:
    received = torch.stack([torch.full((N,), float(i)) for i in range(STEPS)])
    return [received, received]


def buggy() -> list[torch.Tensor]:
    sender, *readers = [torch.cuda.Stream() for _ in range(3)]
    bucket = torch.empty(N, device="cuda")  # buffer
    received = torch.empty(2, STEPS, N, device="cuda")
    for i in range(STEPS):
        with torch.cuda.stream(sender):
            bucket.fill_(i)  # second
        for rank, reader in enumerate(readers):
            reader.wait_stream(sender)  # edge: load-bearing
            with torch.cuda.stream(reader):
                torch.cuda._sleep(SPIN)
                received[rank, i].copy_(bucket)  # first
        sender.wait_stream(readers[0])  # edge: load-bearing
    return _read(readers, received)


def fixed() -> list[torch.Tensor]:
    sender, *readers = [torch.cuda.Stream() for _ in range(3)]
    bucket = torch.empty(N, device="cuda")
    received = torch.empty(2, STEPS, N, device="cuda")
    for i in range(STEPS):
        with torch.cuda.stream(sender):
            bucket.fill_(i)
        for rank, reader in enumerate(readers):
            reader.wait_stream(sender)  # edge: load-bearing
            with torch.cuda.stream(reader):
                torch.cuda._sleep(SPIN)
                received[rank, i].copy_(bucket)
        sender.wait_stream(readers[0])  # edge: load-bearing
        sender.wait_stream(readers[1])  # edge: load-bearing
    return _read(readers, received)


def _read(streams: list[torch.cuda.Stream], received: torch.Tensor) -> list[torch.Tensor]:
    """What each rank got, read on its own stream."""
    read: list[torch.Tensor] = []
    for rank, stream in enumerate(streams):
        with torch.cuda.stream(stream):
            read.append(received[rank].cpu())
    return read
