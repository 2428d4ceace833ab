"""Gradient buckets are reduced on a side stream while compute fills the next ones."""

import torch

N = 8
BUCKETS = 3
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), 1 - 0.5 * (b + 1)) for b in range(BUCKETS)])


def joined() -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    weights = torch.ones(BUCKETS, N, device="cuda")
    gradients = torch.empty(BUCKETS, N, device="cuda")
    for b in range(BUCKETS):
        gradients[b].fill_(b + 1)
        reduce.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            gradients[b].mul_(0.5)
    compute.wait_stream(reduce)  # edge: load-bearing
    weights.sub_(gradients)
    return weights


def joined_twice() -> torch.Tensor:
    """A join per bucket and one at the end: each covers the other."""
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    weights = torch.ones(BUCKETS, N, device="cuda")
    gradients = torch.empty(BUCKETS, N, device="cuda")
    for b in range(BUCKETS):
        gradients[b].fill_(b + 1)
        reduce.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            gradients[b].mul_(0.5)
        compute.wait_stream(reduce)  # edge each: masked
    compute.wait_stream(reduce)  # edge last: masked
    weights.sub_(gradients)
    return weights


def not_joined() -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    weights = torch.ones(BUCKETS, N, device="cuda")
    gradients = torch.empty(BUCKETS, N, device="cuda")  # buffer
    for b in range(BUCKETS):
        gradients[b].fill_(b + 1)
        reduce.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            gradients[b].mul_(0.5)  # first
    weights.sub_(gradients)  # second
    return weights
