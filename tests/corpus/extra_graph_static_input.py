"""A graph's static input is refilled from a side stream while a replay is queued."""

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), 2.0 * (i + 1)) for i in range(STEPS)])


def one_way() -> torch.Tensor:
    upload = torch.cuda.Stream()
    hosts = [torch.full((N,), float(i + 1), pin_memory=True) for i in range(STEPS)]
    static_in = torch.empty(N, device="cuda")  # buffer
    static_out = torch.empty(N, device="cuda")
    out = torch.empty(STEPS, N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(static_in, 2, out=static_out)  # first
    for i in range(STEPS):
        with torch.cuda.stream(upload):
            static_in.copy_(hosts[i], non_blocking=True)  # second
        torch.cuda.current_stream().wait_stream(upload)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        graph.replay()  # first
        out[i].copy_(static_out)
    return out


def both_ways() -> torch.Tensor:
    upload = torch.cuda.Stream()
    hosts = [torch.full((N,), float(i + 1), pin_memory=True) for i in range(STEPS)]
    static_in, static_out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    out = torch.empty(STEPS, N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(static_in, 2, out=static_out)
    for i in range(STEPS):
        with torch.cuda.stream(upload):
            static_in.copy_(hosts[i], non_blocking=True)
        torch.cuda.current_stream().wait_stream(upload)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        graph.replay()
        upload.wait_stream(torch.cuda.current_stream())  # edge: load-bearing
        out[i].copy_(static_out)
    return out
