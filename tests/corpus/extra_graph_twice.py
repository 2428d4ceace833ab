"""One executable graph is never in execution twice: its launches are ordered, streams or not.

(cudaGraphLaunch: "each launch is ordered behind both any previous work in hStream and any previous
launches of hGraphExec".) What surrounds the launches has no such order.
"""

import torch

N = 8


def right() -> torch.Tensor:
    return torch.full((N,), 2.0)


def counted() -> torch.Tensor:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    counter = torch.empty(N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        counter.add_(1)
    with torch.cuda.stream(first):
        counter.zero_()
        graph.replay()
    with torch.cuda.stream(second):
        graph.replay()
        return counter.cpu()
