"""B15: record_stream(current_stream()) inside the onload context names the allocating stream.

That call is a no-op; the compute stream is never recorded, and the next onload takes the block
while compute still reads it. The fix takes the compute stream before it enters the context.
"""

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i + 1)) for i in range(STEPS)])


def buggy() -> torch.Tensor:
    compute, onload = torch.cuda.current_stream(), torch.cuda.Stream()
    host = [torch.full((N,), float(i + 1), pin_memory=True) for i in range(STEPS)]
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        with torch.cuda.stream(onload):
            weight = torch.empty(N, device="cuda")  # buffer
            weight.copy_(host[i], non_blocking=True)  # second
            here = torch.cuda.current_stream()
            weight.record_stream(here)  # edge: redundant; diag: record-stream-on-allocating-stream
        compute.wait_stream(onload)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        out[i].copy_(weight)  # first
        del weight
    return out


def fixed() -> torch.Tensor:
    compute, onload = torch.cuda.current_stream(), torch.cuda.Stream()
    host = [torch.full((N,), float(i + 1), pin_memory=True) for i in range(STEPS)]
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        with torch.cuda.stream(onload):
            weight = torch.empty(N, device="cuda")
            weight.copy_(host[i], non_blocking=True)
        weight.record_stream(compute)  # edge: load-bearing
        compute.wait_stream(onload)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        out[i].copy_(weight)
        del weight
    return out
