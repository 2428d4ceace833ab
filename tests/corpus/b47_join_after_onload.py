"""B47: weights are copied on a side stream and read without a join: the smallest program of all.

With allocation and free in a loop there are three calls: the join after the copy is needed always;
the wait before the next copy and record_stream cover each other.
"""

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0)


def right_steps() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i + 1)) for i in range(STEPS)])


def buggy() -> torch.Tensor:
    onload = torch.cuda.Stream()
    host = torch.full((N,), 1.0, pin_memory=True)
    weight = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(N, device="cuda")
    with torch.cuda.stream(onload):
        torch.cuda._sleep(SPIN)
        weight.copy_(host, non_blocking=True)  # first
    out.copy_(weight)  # second
    return out


def fixed() -> torch.Tensor:
    compute, onload = torch.cuda.current_stream(), torch.cuda.Stream()
    host = torch.full((N,), 1.0, pin_memory=True)
    weight, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    with torch.cuda.stream(onload):
        torch.cuda._sleep(SPIN)
        weight.copy_(host, non_blocking=True)
    compute.wait_stream(onload)  # edge: load-bearing
    out.copy_(weight)
    return out


def all_three() -> torch.Tensor:
    compute, onload = torch.cuda.current_stream(), torch.cuda.Stream()
    host = [torch.full((N,), float(i + 1), pin_memory=True) for i in range(STEPS)]
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        onload.wait_stream(compute)  # edge before: masked
        with torch.cuda.stream(onload):
            weight = torch.empty(N, device="cuda")
            weight.copy_(host[i], non_blocking=True)
        compute.wait_stream(onload)  # edge: load-bearing
        weight.record_stream(compute)  # edge recorded: masked
        torch.cuda._sleep(SPIN)
        out[i].copy_(weight)
        del weight
    return out


def no_record_stream() -> torch.Tensor:
    """The last weight is freed with its read pending and nothing behind it that waits."""
    compute, onload = torch.cuda.current_stream(), torch.cuda.Stream()
    host = [torch.full((N,), float(i + 1), pin_memory=True) for i in range(STEPS)]
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        onload.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(onload):
            weight = torch.empty(N, device="cuda")  # diag: latent-use-after-free
            weight.copy_(host[i], non_blocking=True)
        compute.wait_stream(onload)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        out[i].copy_(weight)  # diag: latent-use-after-free
        del weight  # diag: latent-use-after-free
    return out


def no_wait_before() -> torch.Tensor:
    compute, onload = torch.cuda.current_stream(), torch.cuda.Stream()
    host = [torch.full((N,), float(i + 1), pin_memory=True) for i in range(STEPS)]
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        with torch.cuda.stream(onload):
            weight = torch.empty(N, device="cuda")
            weight.copy_(host[i], non_blocking=True)
        compute.wait_stream(onload)  # edge: load-bearing
        weight.record_stream(compute)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        out[i].copy_(weight)
        del weight
    return out
