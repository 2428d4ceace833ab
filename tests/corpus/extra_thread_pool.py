"""Uploads run in an executor; a future orders the threads, an event the streams."""

from concurrent.futures import ThreadPoolExecutor

import torch

N = 8
PARTS = 3
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(PARTS)])


def with_event() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    hosts = [torch.full((N,), float(i), pin_memory=True) for i in range(PARTS)]
    parts = torch.empty(PARTS, N, device="cuda")
    out = torch.empty(PARTS, N, device="cuda")

    def upload(i: int) -> torch.cuda.Event:
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            parts[i].copy_(hosts[i], non_blocking=True)
            return side.record_event()  # edge: load-bearing

    with ThreadPoolExecutor(1) as executor:
        futures = [executor.submit(upload, i) for i in range(PARTS)]
        for i, future in enumerate(futures):
            main.wait_event(future.result())  # edge: load-bearing
            out[i].copy_(parts[i])
    return out


def future_only() -> torch.Tensor:
    side = torch.cuda.Stream()
    hosts = [torch.full((N,), float(i), pin_memory=True) for i in range(PARTS)]
    parts = torch.empty(PARTS, N, device="cuda")  # buffer
    out = torch.empty(PARTS, N, device="cuda")

    def upload(i: int) -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            parts[i].copy_(hosts[i], non_blocking=True)  # first

    with ThreadPoolExecutor(1) as executor:
        futures = [executor.submit(upload, i) for i in range(PARTS)]
        for i, future in enumerate(futures):
            future.result()
            out[i].copy_(parts[i])  # second
    return out
