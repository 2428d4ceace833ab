"""The pool has 32 streams per priority: the 33rd is the first again. Right by accident."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0)


def wrapped() -> torch.Tensor:
    streams = [torch.cuda.Stream() for _ in range(33)]
    x, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    with torch.cuda.stream(streams[0]):
        torch.cuda._sleep(SPIN)
        x.fill_(1)
    with torch.cuda.stream(streams[32]):
        out.copy_(x)
        return out.cpu()


def not_wrapped() -> torch.Tensor:
    streams = [torch.cuda.Stream() for _ in range(32)]
    x = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(N, device="cuda")
    with torch.cuda.stream(streams[0]):
        torch.cuda._sleep(SPIN)
        x.fill_(1)  # first
    with torch.cuda.stream(streams[31]):
        out.copy_(x)  # second
        return out.cpu()
