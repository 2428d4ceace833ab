"""B44: every event is right, and the block is reused under its reader: order is not lifetime.

``latent`` is the same program before somebody allocates: bytes are right, the free is not.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0)


def buggy() -> torch.Tensor:
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    with torch.cuda.stream(producer):
        tensor = torch.empty(N, device="cuda")  # buffer
        tensor.fill_(1)
    filled = producer.record_event()  # edge: load-bearing
    consumer.wait_event(filled)  # edge: load-bearing
    with torch.cuda.stream(consumer):
        torch.cuda._sleep(SPIN)
        out.copy_(tensor)  # first
    del tensor
    with torch.cuda.stream(producer):
        other = torch.empty(N, device="cuda")  # buffer
        other.fill_(9)  # second
    with torch.cuda.stream(consumer):
        return out.cpu()


def fixed() -> torch.Tensor:
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    with torch.cuda.stream(producer):
        tensor = torch.empty(N, device="cuda")
        tensor.fill_(1)
    filled = producer.record_event()  # edge: load-bearing
    consumer.wait_event(filled)  # edge: load-bearing
    with torch.cuda.stream(consumer):
        torch.cuda._sleep(SPIN)
        out.copy_(tensor)
    tensor.record_stream(consumer)  # edge: load-bearing
    del tensor
    with torch.cuda.stream(producer):
        other = torch.empty(N, device="cuda")
        other.fill_(9)
    with torch.cuda.stream(consumer):
        return out.cpu()


def latent() -> torch.Tensor:
    producer, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    with torch.cuda.stream(producer):
        tensor = torch.empty(N, device="cuda")  # diag: latent-use-after-free
        tensor.fill_(1)
    filled = producer.record_event()  # edge: load-bearing
    consumer.wait_event(filled)  # edge: load-bearing
    with torch.cuda.stream(consumer):
        torch.cuda._sleep(SPIN)
        out.copy_(tensor)  # diag: latent-use-after-free
    del tensor  # diag: latent-use-after-free
    with torch.cuda.stream(consumer):
        return out.cpu()
