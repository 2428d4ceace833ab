"""Activations are offloaded to pinned memory on a side stream and fetched back later."""

import torch

N = 8
LAYERS = 3
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(LAYERS)])


def recorded() -> torch.Tensor:
    compute, offload = torch.cuda.current_stream(), torch.cuda.Stream()
    hosts = torch.full((LAYERS, N), -1.0, pin_memory=True)
    out = torch.empty(LAYERS, N, device="cuda")
    for i in range(LAYERS):
        activation = torch.empty(N, device="cuda")
        activation.fill_(i)
        offload.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(offload):
            torch.cuda._sleep(SPIN)
            hosts[i].copy_(activation, non_blocking=True)
        activation.record_stream(offload)  # edge: load-bearing
        del activation
    compute.wait_stream(offload)  # edge: load-bearing
    for i in reversed(range(LAYERS)):
        out[i].copy_(hosts[i], non_blocking=True)
    return out


def unrecorded() -> torch.Tensor:
    compute, offload = torch.cuda.current_stream(), torch.cuda.Stream()
    hosts = torch.full((LAYERS, N), -1.0, pin_memory=True)
    out = torch.empty(LAYERS, N, device="cuda")
    for i in range(LAYERS):
        activation = torch.empty(N, device="cuda")  # buffer
        activation.fill_(i)  # second
        offload.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(offload):
            torch.cuda._sleep(SPIN)
            hosts[i].copy_(activation, non_blocking=True)  # first
        del activation
    compute.wait_stream(offload)  # edge: load-bearing
    for i in reversed(range(LAYERS)):
        out[i].copy_(hosts[i], non_blocking=True)
    return out


def fetched_too_early() -> torch.Tensor:
    """The pinned memory itself crosses the streams: a device write, then a device read."""
    compute, offload = torch.cuda.current_stream(), torch.cuda.Stream()
    hosts = torch.full((LAYERS, N), -1.0, pin_memory=True)  # buffer
    activations = torch.empty(LAYERS, N, device="cuda")
    out = torch.empty(LAYERS, N, device="cuda")
    for i in range(LAYERS):
        activations[i].fill_(i)
        offload.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(offload):
            torch.cuda._sleep(SPIN)
            hosts[i].copy_(activations[i], non_blocking=True)  # first
    for i in reversed(range(LAYERS)):
        out[i].copy_(hosts[i], non_blocking=True)  # second
    return out
