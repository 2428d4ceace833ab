"""B16: the free of an offloaded weight is ordered on the stream that allocated it, not on its user.

Same bug as B15 without the useless call, and the three fixes that were accepted for it: wait back,
record_stream, keep a reference.
"""

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i + 1)) for i in range(STEPS)])


def right_kept() -> tuple[torch.Tensor, list[torch.Tensor]]:
    return right(), list(right())


def buggy() -> torch.Tensor:
    compute, offload = torch.cuda.current_stream(), torch.cuda.Stream()
    host = [torch.full((N,), float(i + 1), pin_memory=True) for i in range(STEPS)]
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        with torch.cuda.stream(offload):
            weight = torch.empty(N, device="cuda")  # buffer
            weight.copy_(host[i], non_blocking=True)  # second
        compute.wait_stream(offload)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        out[i].copy_(weight)  # first
        del weight
    return out


def fixed_back_wait() -> torch.Tensor:
    compute, offload = torch.cuda.current_stream(), torch.cuda.Stream()
    host = [torch.full((N,), float(i + 1), pin_memory=True) for i in range(STEPS)]
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        with torch.cuda.stream(offload):
            weight = torch.empty(N, device="cuda")
            weight.copy_(host[i], non_blocking=True)
        compute.wait_stream(offload)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        out[i].copy_(weight)
        offload.wait_stream(compute)  # edge: load-bearing
        del weight
    return out


def fixed_record_stream() -> torch.Tensor:
    compute, offload = torch.cuda.current_stream(), torch.cuda.Stream()
    host = [torch.full((N,), float(i + 1), pin_memory=True) for i in range(STEPS)]
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        with torch.cuda.stream(offload):
            weight = torch.empty(N, device="cuda")
            weight.copy_(host[i], non_blocking=True)
        compute.wait_stream(offload)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        out[i].copy_(weight)
        weight.record_stream(compute)  # edge: load-bearing
        del weight
    return out


def fixed_keep_reference() -> tuple[torch.Tensor, list[torch.Tensor]]:
    compute, offload = torch.cuda.current_stream(), torch.cuda.Stream()
    host = [torch.full((N,), float(i + 1), pin_memory=True) for i in range(STEPS)]
    out = torch.empty(STEPS, N, device="cuda")
    kept: list[torch.Tensor] = []
    for i in range(STEPS):
        with torch.cuda.stream(offload):
            weight = torch.empty(N, device="cuda")
            weight.copy_(host[i], non_blocking=True)
        compute.wait_stream(offload)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        out[i].copy_(weight)
        kept.append(weight)
    return out, kept
