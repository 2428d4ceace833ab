"""B11: a graph's copy node re-reads a pinned block that has since been given to somebody else.

Every schedule agrees and all are wrong: only a reference shows it. ``overwritten`` is the sister
that does depend on the schedule: the block is rewritten while the replay is queued.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0)


def buggy() -> torch.Tensor:
    pool = [torch.empty(N, pin_memory=True)]
    device, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    pointers = pool.pop()
    pointers.fill_(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        device.copy_(pointers, non_blocking=True)
        out.copy_(device)
    pool.append(pointers)  # released once captured, though every replay will read it
    other = pool.pop()
    other.fill_(99)
    graph.replay()
    return out.cpu()


def fixed() -> torch.Tensor:
    pool = [torch.empty(N, pin_memory=True), torch.empty(N, pin_memory=True)]
    device, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    pointers = pool.pop()
    pointers.fill_(1)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        device.copy_(pointers, non_blocking=True)
        out.copy_(device)
    other = pool.pop()  # ``pointers`` belongs to the graph
    other.fill_(99)
    graph.replay()
    return out.cpu()


def overwritten() -> torch.Tensor:
    pointers = torch.empty(N, pin_memory=True)  # buffer
    device, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        device.copy_(pointers, non_blocking=True)  # first
        out.copy_(device)
    pointers.fill_(1)
    torch.cuda._sleep(SPIN)
    graph.replay()  # first
    pointers.fill_(99)  # second
    return out.cpu()


def overwritten_after_sync() -> torch.Tensor:
    pointers = torch.empty(N, pin_memory=True)
    device, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        device.copy_(pointers, non_blocking=True)
        out.copy_(device)
    pointers.fill_(1)
    torch.cuda._sleep(SPIN)
    graph.replay()
    torch.cuda.current_stream().synchronize()  # edge: load-bearing
    pointers.fill_(99)
    return out.cpu()
