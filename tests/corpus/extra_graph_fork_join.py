"""A capture that forks to a side stream and joins again: branches of one graph."""

import torch

N = 8


def right() -> torch.Tensor:
    return torch.full((N,), 10.0)  # (1 + 1) * 2 + (1 + 1) * 3


def joined() -> torch.Tensor:
    side = torch.cuda.Stream()
    x, a, b, c, out = (torch.empty(N, device="cuda") for _ in range(5))
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        torch.add(x, 1, out=a)
        side.wait_stream(main)  # edge: load-bearing
        with torch.cuda.stream(side):
            torch.mul(a, 2, out=b)
        torch.mul(a, 3, out=c)
        main.wait_stream(side)  # edge: load-bearing
        torch.add(b, c, out=out)
    x.fill_(1)
    graph.replay()
    return out


def mutated_in_branch() -> torch.Tensor:
    side = torch.cuda.Stream()
    x = torch.empty(N, device="cuda")
    a = torch.empty(N, device="cuda")  # buffer
    b, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        torch.add(x, 1, out=a)
        side.wait_stream(main)  # edge: load-bearing
        with torch.cuda.stream(side):
            torch.mul(a, 2, out=b)  # first
        a.mul_(3)  # second
        main.wait_stream(side)  # edge: load-bearing
        torch.add(a, b, out=out)
    x.fill_(1)
    graph.replay()  # first; second
    return out


def with_events() -> torch.Tensor:
    side = torch.cuda.Stream()
    x, a, b, c, out = (torch.empty(N, device="cuda") for _ in range(5))
    forked, finished = torch.cuda.Event(), torch.cuda.Event()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        torch.add(x, 1, out=a)
        forked.record(main)  # edge: load-bearing
        side.wait_event(forked)  # edge: load-bearing
        with torch.cuda.stream(side):
            torch.mul(a, 2, out=b)
            finished.record(side)  # edge: load-bearing
        torch.mul(a, 3, out=c)
        main.wait_event(finished)  # edge: load-bearing
        torch.add(b, c, out=out)
    x.fill_(1)
    graph.replay()
    return out
