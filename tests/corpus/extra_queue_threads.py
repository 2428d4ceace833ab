"""A thread uploads batches on its own stream and hands them to the main thread through a queue."""

import queue
import threading

import torch

N = 8
BATCHES = 3
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(BATCHES)])


def with_event() -> torch.Tensor:
    main, upload = torch.cuda.current_stream(), torch.cuda.Stream()
    hosts = [torch.full((N,), float(i), pin_memory=True) for i in range(BATCHES)]
    slots = torch.empty(BATCHES, N, device="cuda")
    out = torch.empty(BATCHES, N, device="cuda")
    ready: queue.Queue[tuple[torch.Tensor, torch.cuda.Event]] = queue.Queue()

    def produce() -> None:
        with torch.cuda.stream(upload):
            for slot, host in zip(slots.unbind(), hosts, strict=True):
                torch.cuda._sleep(SPIN)
                slot.copy_(host, non_blocking=True)
                uploaded = upload.record_event()  # edge: load-bearing
                ready.put((slot, uploaded))

    thread = threading.Thread(target=produce)
    thread.start()
    for i in range(BATCHES):
        slot, uploaded = ready.get()
        main.wait_event(uploaded)  # edge: load-bearing
        out[i].copy_(slot)
    thread.join()
    return out


def without_event() -> torch.Tensor:
    """The queue orders the two threads, not the two streams."""
    upload = torch.cuda.Stream()
    hosts = [torch.full((N,), float(i), pin_memory=True) for i in range(BATCHES)]
    slots = torch.empty(BATCHES, N, device="cuda")  # buffer
    out = torch.empty(BATCHES, N, device="cuda")
    ready: queue.Queue[torch.Tensor] = queue.Queue()

    def produce() -> None:
        with torch.cuda.stream(upload):
            for slot, host in zip(slots.unbind(), hosts, strict=True):
                torch.cuda._sleep(SPIN)
                slot.copy_(host, non_blocking=True)  # first
                ready.put(slot)

    thread = threading.Thread(target=produce)
    thread.start()
    for i in range(BATCHES):
        out[i].copy_(ready.get())  # second
    thread.join()
    return out


def dropped_by_consumer() -> torch.Tensor:
    """Fresh tensors; the consumer drops them and says so before the next is allocated."""
    main, upload = torch.cuda.current_stream(), torch.cuda.Stream()
    hosts = [torch.full((N,), float(i), pin_memory=True) for i in range(BATCHES)]
    out = torch.empty(BATCHES, N, device="cuda")
    ready: queue.Queue[list[torch.Tensor]] = queue.Queue()
    events: queue.Queue[torch.cuda.Event] = queue.Queue()
    dropped: queue.Queue[None] = queue.Queue()

    def produce() -> None:
        with torch.cuda.stream(upload):
            for host in hosts:
                ready.put([host.to("cuda", non_blocking=True)])
                uploaded = upload.record_event()  # edge: load-bearing
                events.put(uploaded)
                dropped.get()

    thread = threading.Thread(target=produce)
    thread.start()
    for i in range(BATCHES):
        batch = ready.get().pop()
        uploaded = events.get()
        main.wait_event(uploaded)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        out[i].copy_(batch)
        batch.record_stream(main)  # edge: load-bearing
        del batch
        dropped.put(None)
    thread.join()
    return out
