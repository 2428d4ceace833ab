"""B22: "consumed" is said by a host flag as soon as the copy is enqueued, not when it has run."""

import queue
import threading

import torch

N = 8
LAYERS = 2
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(LAYERS)])


def buggy() -> torch.Tensor:
    main, loader = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer = torch.empty(N, device="cuda")  # buffer
    weights = torch.empty(LAYERS, N, device="cuda")
    for i in range(LAYERS):
        with torch.cuda.stream(loader):
            buffer.fill_(i)  # second
        ready = loader.record_event()  # edge: load-bearing
        main.wait_event(ready)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        weights[i].copy_(buffer)  # first
    return weights


def fixed() -> torch.Tensor:
    main, loader = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer = torch.empty(N, device="cuda")
    weights = torch.empty(LAYERS, N, device="cuda")
    for i in range(LAYERS):
        with torch.cuda.stream(loader):
            buffer.fill_(i)
        ready = loader.record_event()  # edge: load-bearing
        main.wait_event(ready)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        weights[i].copy_(buffer)
        consumed = main.record_event()  # edge: load-bearing
        loader.wait_event(consumed)  # edge: load-bearing
    return weights


def buggy_threads() -> torch.Tensor:
    main, loader = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer = torch.empty(N, device="cuda")  # buffer
    weights = torch.empty(LAYERS, N, device="cuda")
    ready: queue.Queue[torch.cuda.Event] = queue.Queue()
    consumed: queue.Queue[None] = queue.Queue()

    def load() -> None:
        with torch.cuda.stream(loader):
            for i in range(LAYERS):
                buffer.fill_(i)  # second
                filled = loader.record_event()  # edge: load-bearing
                ready.put(filled)
                consumed.get()

    thread = threading.Thread(target=load)
    thread.start()
    for i in range(LAYERS):
        filled = ready.get()
        main.wait_event(filled)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        weights[i].copy_(buffer)  # first
        consumed.put(None)
    thread.join()
    return weights


def fixed_threads() -> torch.Tensor:
    main, loader = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer = torch.empty(N, device="cuda")
    weights = torch.empty(LAYERS, N, device="cuda")
    ready: queue.Queue[torch.cuda.Event] = queue.Queue()
    consumed: queue.Queue[torch.cuda.Event] = queue.Queue()

    def load() -> None:
        with torch.cuda.stream(loader):
            for i in range(LAYERS):
                buffer.fill_(i)
                filled = loader.record_event()  # edge: load-bearing
                ready.put(filled)
                copied = consumed.get()
                loader.wait_event(copied)  # edge: load-bearing

    thread = threading.Thread(target=load)
    thread.start()
    for i in range(LAYERS):
        filled = ready.get()
        main.wait_event(filled)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        weights[i].copy_(buffer)
        copied = main.record_event()  # edge: load-bearing
        consumed.put(copied)
    thread.join()
    return weights
