"""A ring of three device buffers between a producer and a consumer, with events both ways."""

import torch

N = 8
STEPS = 5
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(STEPS)])


def ring() -> torch.Tensor:
    consume, produce = torch.cuda.current_stream(), torch.cuda.Stream()
    slots = [torch.empty(N, device="cuda") for _ in range(3)]
    out = torch.empty(STEPS, N, device="cuda")
    filled = [torch.cuda.Event() for _ in slots]
    emptied = [torch.cuda.Event() for _ in slots]
    for i in range(STEPS):
        slot = i % 3
        if i >= 3:
            produce.wait_event(emptied[slot])  # edge: load-bearing
        with torch.cuda.stream(produce):
            slots[slot].fill_(i)
            filled[slot].record(produce)  # edge: load-bearing
        consume.wait_event(filled[slot])  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        out[i].copy_(slots[slot])
        emptied[slot].record(consume)  # edge: load-bearing
    return out


def one_way() -> torch.Tensor:
    consume, produce = torch.cuda.current_stream(), torch.cuda.Stream()
    slots = [torch.empty(N, device="cuda") for _ in range(3)]  # buffer
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        slot = i % 3
        with torch.cuda.stream(produce):
            slots[slot].fill_(i)  # second
        consume.wait_stream(produce)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        out[i].copy_(slots[slot])  # first
    return out
