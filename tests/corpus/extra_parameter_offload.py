"""Layer weights live on the host and are swapped in by ``.data =``, as offloading libraries do."""

import torch

N = 8
LAYERS = 3
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0 * 2 * 3)


def recorded() -> torch.Tensor:
    compute, onload = torch.cuda.current_stream(), torch.cuda.Stream()
    weights = [torch.nn.Parameter(torch.full((N,), float(i + 1))) for i in range(LAYERS)]
    hosts = [weight.data.pin_memory() for weight in weights]
    x = torch.ones(N, device="cuda")
    with torch.no_grad():
        for weight, host in zip(weights, hosts, strict=True):
            with torch.cuda.stream(onload):
                weight.data = host.to("cuda", non_blocking=True)
            compute.wait_stream(onload)  # edge: load-bearing
            weight.data.record_stream(compute)  # edge: load-bearing
            torch.cuda._sleep(SPIN)
            x.mul_(weight)
            weight.data = host
    return x


def unrecorded() -> torch.Tensor:
    compute, onload = torch.cuda.current_stream(), torch.cuda.Stream()
    weights = [torch.nn.Parameter(torch.full((N,), float(i + 1))) for i in range(LAYERS)]
    hosts = [weight.data.pin_memory() for weight in weights]
    x = torch.ones(N, device="cuda")
    with torch.no_grad():
        for weight, host in zip(weights, hosts, strict=True):
            with torch.cuda.stream(onload):
                weight.data = host.to("cuda", non_blocking=True)  # buffer; second
            compute.wait_stream(onload)  # edge: load-bearing
            torch.cuda._sleep(SPIN)
            x.mul_(weight)  # first
            weight.data = host
    return x
