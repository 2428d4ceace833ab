"""Allocations from a pool of their own follow the same rules of order and reuse."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0)


def recorded() -> torch.Tensor:
    compute, side = torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(N, device="cuda")
    x.fill_(1)
    side.wait_stream(compute)  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        out.copy_(x)
    x.record_stream(side)  # edge: load-bearing
    del x
    with torch.cuda.use_mem_pool(pool):
        y = torch.empty(N, device="cuda")
    y.fill_(9)
    compute.wait_stream(side)  # edge: load-bearing
    return out


def unrecorded() -> torch.Tensor:
    compute, side = torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(N, device="cuda")  # buffer
    x.fill_(1)
    side.wait_stream(compute)  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        out.copy_(x)  # first
    del x
    with torch.cuda.use_mem_pool(pool):
        y = torch.empty(N, device="cuda")  # buffer
    y.fill_(9)  # second
    compute.wait_stream(side)  # edge: load-bearing
    return out


def other_pool() -> torch.Tensor:
    """The same, but what is allocated next comes from another pool: latent."""
    compute, side = torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        x = torch.empty(N, device="cuda")
    x.fill_(1)
    side.wait_stream(compute)  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        out.copy_(x)
    del x  # diag: latent-use-after-free
    y = torch.empty(N, device="cuda")
    y.fill_(9)
    compute.wait_stream(side)  # edge: load-bearing
    return out
