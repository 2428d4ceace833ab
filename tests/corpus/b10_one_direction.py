"""B10: the reduction waits for compute, compute never waits for the reduction."""

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(STEPS)])


def buggy() -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    bucket = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        bucket.fill_(i)  # second
        reduce.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            out[i].copy_(bucket)  # first
    with torch.cuda.stream(reduce):
        return out.cpu()


def fixed() -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    bucket = torch.empty(N, device="cuda")
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        compute.wait_stream(reduce)  # edge: load-bearing
        bucket.fill_(i)
        reduce.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            out[i].copy_(bucket)
    with torch.cuda.stream(reduce):
        return out.cpu()
