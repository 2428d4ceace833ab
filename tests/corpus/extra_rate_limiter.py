"""All-gathers run ahead of compute, and the host limits by how many: the event also keeps a block.

The drain at the end protects only frees, so no byte depends on it.
"""

from collections import deque

import torch

N = 8
LAYERS = 4
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(LAYERS)])


def limited() -> torch.Tensor:
    compute, gather = torch.cuda.current_stream(), torch.cuda.Stream()
    hosts = [torch.full((N,), float(i), pin_memory=True) for i in range(LAYERS)]
    out = torch.empty(LAYERS, N, device="cuda")
    inflight: deque[tuple[torch.cuda.Event, list[torch.Tensor]]] = deque()
    for i in range(LAYERS):
        if len(inflight) == 2:
            event, kept = inflight.popleft()
            event.synchronize()  # edge: load-bearing
            kept.clear()
        with torch.cuda.stream(gather):
            weight = torch.empty(N, device="cuda")
            weight.copy_(hosts[i], non_blocking=True)
        compute.wait_stream(gather)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        out[i].copy_(weight)
        used = compute.record_event()  # edge: load-bearing
        inflight.append((used, [weight]))
        del weight
    while inflight:
        event, kept = inflight.popleft()
        event.synchronize()  # edge: redundant
        kept.clear()
    return out


def freed_too_early() -> torch.Tensor:
    """Limited in number, but the block is dropped before its event is awaited."""
    compute, gather = torch.cuda.current_stream(), torch.cuda.Stream()
    hosts = [torch.full((N,), float(i), pin_memory=True) for i in range(LAYERS)]
    out = torch.empty(LAYERS, N, device="cuda")
    inflight: deque[torch.cuda.Event] = deque()
    for i in range(LAYERS):
        if len(inflight) == 2:
            inflight.popleft().synchronize()  # edge limit: load-bearing
        with torch.cuda.stream(gather):
            weight = torch.empty(N, device="cuda")  # buffer
            weight.copy_(hosts[i], non_blocking=True)  # second
        compute.wait_stream(gather)  # edge: load-bearing
        torch.cuda._sleep(SPIN)
        out[i].copy_(weight)  # first
        del weight
        used = compute.record_event()  # edge used: load-bearing
        inflight.append(used)
    return out
