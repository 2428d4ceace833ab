"""Decode steps as one graph that feeds itself; tokens are copied out on a side stream."""

import torch

N = 8
STEPS = 3
SPIN = 1_000_000


def right() -> list[list[float]]:
    return [[float(i + 1)] * N for i in range(STEPS)]


def both_ways() -> list[list[float]]:
    main, copy = torch.cuda.current_stream(), torch.cuda.Stream()
    token = torch.empty(N, device="cuda")
    hosts = torch.full((STEPS, N), -1.0, pin_memory=True)
    replayed, copied = torch.cuda.Event(), torch.cuda.Event()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token.add_(1)
    token.zero_()
    for i in range(STEPS):
        graph.replay()
        replayed.record(main)  # edge: load-bearing
        copy.wait_event(replayed)  # edge: load-bearing
        with torch.cuda.stream(copy):
            torch.cuda._sleep(SPIN)
            hosts[i].copy_(token, non_blocking=True)
            copied.record(copy)  # edge: load-bearing
        main.wait_event(copied)  # edge: load-bearing
    copy.synchronize()  # edge: load-bearing
    return hosts.tolist()


def one_way() -> list[list[float]]:
    main, copy = torch.cuda.current_stream(), torch.cuda.Stream()
    token = torch.empty(N, device="cuda")  # buffer
    hosts = torch.full((STEPS, N), -1.0, pin_memory=True)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        token.add_(1)  # second
    token.zero_()
    for i in range(STEPS):
        graph.replay()  # second
        copy.wait_stream(main)  # edge: load-bearing
        with torch.cuda.stream(copy):
            torch.cuda._sleep(SPIN)
            hosts[i].copy_(token, non_blocking=True)  # first
    copy.synchronize()  # edge: load-bearing
    return hosts.tolist()
