"""B56: two graphs share a private pool: an intermediate of one lives where the other's output does.

They may be replayed in any order, if never at once and if nobody needs one's output after the other
was replayed.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((N,), 4.0), torch.full((N,), 20.0)  # (1 + 1) * 2, 10 * 2


def serial() -> tuple[torch.Tensor, torch.Tensor]:
    in_a, in_b = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    answers = torch.empty(2, N, device="cuda")
    pool = torch.cuda.graph_pool_handle()
    graph_a, graph_b = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph_a, pool=pool):
        intermediate = in_a + 1
        out_a = intermediate * 2
        del intermediate
    with torch.cuda.graph(graph_b, pool=pool):
        out_b = in_b * 2
    in_a.fill_(1)
    in_b.fill_(10)
    graph_b.replay()
    answers[1].copy_(out_b)
    graph_a.replay()
    answers[0].copy_(out_a)
    return answers[0], answers[1]


def read_too_late() -> tuple[torch.Tensor, torch.Tensor]:
    """Wrong on every schedule."""
    in_a, in_b = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    answers = torch.empty(2, N, device="cuda")
    pool = torch.cuda.graph_pool_handle()
    graph_a, graph_b = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph_a, pool=pool):
        intermediate = in_a + 1
        out_a = intermediate * 2
        del intermediate
    with torch.cuda.graph(graph_b, pool=pool):
        out_b = in_b * 2
    in_a.fill_(1)
    in_b.fill_(10)
    graph_b.replay()
    graph_a.replay()
    answers[0].copy_(out_a)
    answers[1].copy_(out_b)
    return answers[0], answers[1]


def at_once() -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    in_a, in_b = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    answers = torch.empty(2, N, device="cuda")
    pool = torch.cuda.graph_pool_handle()
    graph_a, graph_b = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph_a, pool=pool):
        intermediate = in_a + 1  # buffer; first
        out_a = intermediate * 2  # first
        del intermediate
    with torch.cuda.graph(graph_b, pool=pool):
        out_b = in_b * 2  # buffer; second
    with torch.cuda.stream(first):
        in_a.fill_(1)
        torch.cuda._sleep(SPIN)
        graph_a.replay()  # first
        answers[0].copy_(out_a)
    with torch.cuda.stream(second):
        in_b.fill_(10)
        graph_b.replay()  # second
        answers[1].copy_(out_b)
    with torch.cuda.stream(first):
        answer = answers[0].cpu()
    with torch.cuda.stream(second):
        return answer, answers[1].cpu()


def one_after_the_other() -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    in_a, in_b = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    answers = torch.empty(2, N, device="cuda")
    pool = torch.cuda.graph_pool_handle()
    graph_a, graph_b = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph_a, pool=pool):
        intermediate = in_a + 1
        out_a = intermediate * 2
        del intermediate
    with torch.cuda.graph(graph_b, pool=pool):
        out_b = in_b * 2
    with torch.cuda.stream(first):
        in_a.fill_(1)
        torch.cuda._sleep(SPIN)
        graph_a.replay()
        answers[0].copy_(out_a)
    second.wait_stream(first)  # edge: load-bearing
    with torch.cuda.stream(second):
        in_b.fill_(10)
        graph_b.replay()
        answers[1].copy_(out_b)
        result = answers[1].cpu()
    with torch.cuda.stream(first):
        return answers[0].cpu(), result
