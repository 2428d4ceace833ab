"""B03: a KV block that is booked as written is copied to the host before its kernel has run."""

import torch

N = 8
BLOCKS = 2
SPIN = 1_000_000


def right() -> list[list[float]]:
    return [[float(block + 1)] * N for block in range(BLOCKS)]


def buggy() -> list[list[float]]:
    kv = torch.empty(BLOCKS, N, device="cuda")  # buffer
    host = torch.empty(BLOCKS, N, pin_memory=True)
    store = torch.cuda.Stream()
    for block in range(BLOCKS):
        torch.cuda._sleep(SPIN)
        kv[block].fill_(block + 1)  # first
        with torch.cuda.stream(store):
            host[block].copy_(kv[block], non_blocking=True)  # second
    store.synchronize()  # edge: load-bearing
    return host.tolist()


def fixed() -> list[list[float]]:
    kv = torch.empty(BLOCKS, N, device="cuda")
    host = torch.empty(BLOCKS, N, pin_memory=True)
    store = torch.cuda.Stream()
    for block in range(BLOCKS):
        torch.cuda._sleep(SPIN)
        kv[block].fill_(block + 1)
        computed = torch.cuda.Event()
        computed.record()  # edge: load-bearing
        store.wait_event(computed)  # edge: load-bearing
        with torch.cuda.stream(store):
            host[block].copy_(kv[block], non_blocking=True)
    store.synchronize()  # edge: load-bearing
    return host.tolist()
