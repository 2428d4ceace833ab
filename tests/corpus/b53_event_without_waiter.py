"""B53: the scheduler records an event and passes it on; one transport backend never looks at it."""

import torch

N = 8
SPIN = 1_000_000


def right() -> list[float]:
    return [7.0] * N


def ignoring() -> list[float]:
    transport = torch.cuda.Stream()
    kv = torch.empty(N, device="cuda")  # buffer
    remote = torch.full((N,), -1.0, pin_memory=True)

    def send(pages: torch.Tensor, wait_event: torch.cuda.Event) -> None:
        with torch.cuda.stream(transport):
            remote.copy_(pages, non_blocking=True)  # second

    torch.cuda._sleep(SPIN)
    kv.fill_(7)  # first
    written = torch.cuda.Event()
    written.record()  # edge: redundant; diag: event-without-waiter
    send(kv, wait_event=written)
    transport.synchronize()  # edge: load-bearing
    return remote.tolist()


def waiting() -> list[float]:
    transport = torch.cuda.Stream()
    kv = torch.empty(N, device="cuda")
    remote = torch.full((N,), -1.0, pin_memory=True)

    def send(pages: torch.Tensor, wait_event: torch.cuda.Event) -> None:
        transport.wait_event(wait_event)  # edge: load-bearing
        with torch.cuda.stream(transport):
            remote.copy_(pages, non_blocking=True)

    torch.cuda._sleep(SPIN)
    kv.fill_(7)
    written = torch.cuda.current_stream().record_event()  # edge: load-bearing
    send(kv, wait_event=written)
    transport.synchronize()  # edge: load-bearing
    return remote.tolist()
