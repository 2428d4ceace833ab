"""B28: a second stream refills a graph's static buffers while the first still clones its output.

A host lock says only that the clone is enqueued.
"""

import threading

import torch

N = 8
SPIN = 1_000_000


def right() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((N,), 2.0), torch.full((N,), 4.0)


def buggy() -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    requests = [torch.full((N,), 1.0, pin_memory=True), torch.full((N,), 2.0, pin_memory=True)]
    static_in = torch.empty(N, device="cuda")  # buffer in
    static_out = torch.empty(N, device="cuda")  # buffer out
    answers = torch.empty(2, N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(static_in, 2, out=static_out)  # first in; second out
    with torch.cuda.stream(first):
        static_in.copy_(requests[0], non_blocking=True)
        torch.cuda._sleep(SPIN)
        graph.replay()  # first in
        answers[0].copy_(static_out)  # first out
    with torch.cuda.stream(second):
        static_in.copy_(requests[1], non_blocking=True)  # second in
        graph.replay()  # second out
        answers[1].copy_(static_out)
    with torch.cuda.stream(first):
        answer = answers[0].cpu()
    with torch.cuda.stream(second):
        return answer, answers[1].cpu()


def fixed() -> tuple[torch.Tensor, torch.Tensor]:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    requests = [torch.full((N,), 1.0, pin_memory=True), torch.full((N,), 2.0, pin_memory=True)]
    static_in, static_out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    answers = torch.empty(2, N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(static_in, 2, out=static_out)
    with torch.cuda.stream(first):
        static_in.copy_(requests[0], non_blocking=True)
        torch.cuda._sleep(SPIN)
        graph.replay()
        answers[0].copy_(static_out)
    cloned = first.record_event()  # edge: load-bearing
    second.wait_event(cloned)  # edge: load-bearing
    with torch.cuda.stream(second):
        static_in.copy_(requests[1], non_blocking=True)
        graph.replay()
        answers[1].copy_(static_out)
    with torch.cuda.stream(first):
        answer = answers[0].cpu()
    with torch.cuda.stream(second):
        return answer, answers[1].cpu()


def dead() -> tuple[torch.Tensor, torch.Tensor]:
    """Both requests on one stream: the event orders nothing."""
    stream = torch.cuda.Stream()
    requests = [torch.full((N,), 1.0, pin_memory=True), torch.full((N,), 2.0, pin_memory=True)]
    static_in, static_out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    answers = torch.empty(2, N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(static_in, 2, out=static_out)
    for i in range(2):
        with torch.cuda.stream(stream):
            static_in.copy_(requests[i], non_blocking=True)
            torch.cuda._sleep(SPIN)
            graph.replay()
            answers[i].copy_(static_out)
        cloned = stream.record_event()  # edge: redundant
        stream.wait_event(cloned)  # edge: redundant
    with torch.cuda.stream(stream):
        return answers[0].cpu(), answers[1].cpu()


def buggy_threads() -> tuple[torch.Tensor, torch.Tensor]:
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    requests = [torch.full((N,), 1.0, pin_memory=True), torch.full((N,), 2.0, pin_memory=True)]
    static_in = torch.empty(N, device="cuda")  # buffer in
    static_out = torch.empty(N, device="cuda")  # buffer out
    answers = torch.empty(2, N, device="cuda")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        torch.mul(static_in, 2, out=static_out)  # first in; second out
    released = threading.Event()

    def serve(i: int) -> None:
        if i == 1:
            released.wait()
        with torch.cuda.stream(streams[i]):
            static_in.copy_(requests[i], non_blocking=True)  # second in
            torch.cuda._sleep(SPIN)
            graph.replay()  # first in; second out
            answers[i].copy_(static_out)  # first out
        released.set()

    thread = threading.Thread(target=serve, args=(1,))
    thread.start()
    serve(0)
    thread.join()
    with torch.cuda.stream(streams[0]):
        answer = answers[0].cpu()
    with torch.cuda.stream(streams[1]):
        return answer, answers[1].cpu()
