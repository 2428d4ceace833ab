"""B34: an aborted request's pages are given away while the transfer into them is in flight."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 2.0)


def buggy() -> torch.Tensor:
    network = torch.cuda.Stream()
    request_a = torch.full((N,), 1.0, pin_memory=True)
    request_b = torch.full((N,), 2.0, pin_memory=True)
    kv = torch.empty(4, N, device="cuda")  # buffer
    out = torch.empty(N, device="cuda")
    free_pages = [3]
    page = free_pages.pop()
    with torch.cuda.stream(network):
        torch.cuda._sleep(SPIN)
        kv[page].copy_(request_a, non_blocking=True)  # first
    free_pages.append(page)  # aborted
    page = free_pages.pop()
    kv[page].copy_(request_b, non_blocking=True)  # second
    out.copy_(kv[page])
    return out


def fixed() -> torch.Tensor:
    compute, network = torch.cuda.current_stream(), torch.cuda.Stream()
    request_a = torch.full((N,), 1.0, pin_memory=True)
    request_b = torch.full((N,), 2.0, pin_memory=True)
    kv = torch.empty(4, N, device="cuda")
    out = torch.empty(N, device="cuda")
    free_pages = [3]
    page = free_pages.pop()
    with torch.cuda.stream(network):
        torch.cuda._sleep(SPIN)
        kv[page].copy_(request_a, non_blocking=True)
        drained = network.record_event()  # edge: load-bearing
    compute.wait_event(drained)  # edge: load-bearing
    free_pages.append(page)
    page = free_pages.pop()
    kv[page].copy_(request_b, non_blocking=True)
    out.copy_(kv[page])
    return out


def fixed_deferred_release() -> torch.Tensor:
    """The page is released by the host, after the transfer has drained."""
    network = torch.cuda.Stream()
    request_a = torch.full((N,), 1.0, pin_memory=True)
    request_b = torch.full((N,), 2.0, pin_memory=True)
    kv = torch.empty(4, N, device="cuda")
    out = torch.empty(N, device="cuda")
    free_pages = [3]
    page = free_pages.pop()
    with torch.cuda.stream(network):
        torch.cuda._sleep(SPIN)
        kv[page].copy_(request_a, non_blocking=True)
        drained = network.record_event()  # edge: load-bearing
    aborted = [(drained, page)]
    while not free_pages:
        event, page = aborted.pop()
        event.synchronize()  # edge: load-bearing
        free_pages.append(page)
    page = free_pages.pop()
    kv[page].copy_(request_b, non_blocking=True)
    out.copy_(kv[page])
    return out
