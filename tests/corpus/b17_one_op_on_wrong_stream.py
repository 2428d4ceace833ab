"""B17: weights arrive on the offload stream, but their cast runs on compute, before the join.

The join is there and comes one line too late: it orders nothing that conflicts.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 4.0, dtype=torch.float16)


def buggy() -> torch.Tensor:
    compute, offload = torch.cuda.current_stream(), torch.cuda.Stream()
    host = torch.full((N,), 3, dtype=torch.int8, pin_memory=True)
    weight8 = torch.empty(N, dtype=torch.int8, device="cuda")  # buffer
    weight16 = torch.empty(N, dtype=torch.float16, device="cuda")
    out = torch.empty(N, dtype=torch.float16, device="cuda")
    with torch.cuda.stream(offload):
        torch.cuda._sleep(SPIN)
        weight8.copy_(host, non_blocking=True)  # first
    weight16.copy_(weight8)  # second
    compute.wait_stream(offload)  # edge: redundant
    torch.add(weight16, 1, out=out)
    return out


def fixed() -> torch.Tensor:
    compute, offload = torch.cuda.current_stream(), torch.cuda.Stream()
    host = torch.full((N,), 3, dtype=torch.int8, pin_memory=True)
    weight8 = torch.empty(N, dtype=torch.int8, device="cuda")
    weight16 = torch.empty(N, dtype=torch.float16, device="cuda")
    out = torch.empty(N, dtype=torch.float16, device="cuda")
    with torch.cuda.stream(offload):
        torch.cuda._sleep(SPIN)
        weight8.copy_(host, non_blocking=True)
        weight16.copy_(weight8)
    compute.wait_stream(offload)  # edge: load-bearing
    torch.add(weight16, 1, out=out)
    return out
