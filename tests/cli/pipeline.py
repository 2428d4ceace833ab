"""A prefetcher with a wait that carries it."""

import torch

STEPS, N = 3, 8


def run() -> torch.Tensor:
    compute, side = torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        host = torch.full((N,), float(i + 1), pin_memory=True)
        device = torch.empty(N, device="cuda")
        side.wait_stream(compute)
        with torch.cuda.stream(side):
            device.copy_(host, non_blocking=True)
            loaded = side.record_event()
        compute.wait_event(loaded)
        torch.mul(device, 2, out=out[i])
    return out
