"""Two streams of different priority hand a buffer to and fro with two events, recorded again.

Each record is awaited before the next one, so nothing is re-armed.
"""

import torch

N = 8
STEPS = 3
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(STEPS)])


def both_ways() -> torch.Tensor:
    left, right_ = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    buffer = torch.empty(N, device="cuda")
    out = torch.empty(STEPS, N, device="cuda")
    written, read = torch.cuda.Event(), torch.cuda.Event()
    for i in range(STEPS):
        with torch.cuda.stream(left):
            buffer.fill_(i)
            written.record(left)  # edge: load-bearing
        right_.wait_event(written)  # edge: load-bearing
        with torch.cuda.stream(right_):
            torch.cuda._sleep(SPIN)
            out[i].copy_(buffer)
            read.record(right_)  # edge: load-bearing
        left.wait_event(read)  # edge: load-bearing
    with torch.cuda.stream(right_):
        return out.cpu()


def one_way() -> torch.Tensor:
    left, right_ = torch.cuda.Stream(), torch.cuda.Stream(priority=-1)
    buffer = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(STEPS, N, device="cuda")
    written = torch.cuda.Event()
    for i in range(STEPS):
        with torch.cuda.stream(left):
            buffer.fill_(i)  # second
            written.record(left)  # edge: load-bearing
        right_.wait_event(written)  # edge: load-bearing
        with torch.cuda.stream(right_):
            torch.cuda._sleep(SPIN)
            out[i].copy_(buffer)  # first
    with torch.cuda.stream(right_):
        return out.cpu()
