"""Pinned temporaries that die inside the expression which copies them: the allocator keeps them."""

import torch

N = 8
STEPS = 3


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(STEPS)])


def uploads() -> torch.Tensor:
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        out[i].copy_(torch.full((N,), float(i)).pin_memory().cuda(non_blocking=True))
    return out


def two_streams() -> torch.Tensor:
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        with torch.cuda.stream(streams[i % 2]):
            out[i].copy_(torch.full((N,), float(i)).pin_memory(), non_blocking=True)
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)  # edge: load-bearing
    return out
