"""Events that only measure time have no waiter, and need none."""

import torch

N = 8
SPIN = 1_000_000


def right() -> tuple[list[float], bool]:
    return [1.0] * N, True


def measured() -> tuple[list[float], bool]:
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    host = torch.full((N,), -1.0, pin_memory=True)
    x = torch.empty(N, device="cuda")
    start.record()  # edge: any
    torch.cuda._sleep(SPIN)
    x.fill_(1)
    host.copy_(x, non_blocking=True)
    end.record()  # edge: load-bearing
    end.synchronize()  # edge: load-bearing
    return host.tolist(), start.elapsed_time(end) >= 0
