"""B65: compute waits for the reduce-scatter only because it reuses that buffer: depth is a knob.

With ``depth`` buffers a step waits for the oldest reduction in flight. Waiting for the newest is
right as well, and too much for any depth above one.
"""

import torch

N = 8
STEPS = 4
SPIN = 1_000_000


def right(depth: int) -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(STEPS)])


def no_wait(depth: int = 1) -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    inputs = [torch.empty(N, device="cuda") for _ in range(depth)]  # buffer
    out = torch.empty(STEPS, N, device="cuda")
    for i in range(STEPS):
        inputs[i % depth].fill_(i)  # second
        reduce.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            out[i].copy_(inputs[i % depth])  # first
    with torch.cuda.stream(reduce):
        return out.cpu()


def oldest(depth: int = 1) -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    inputs = [torch.empty(N, device="cuda") for _ in range(depth)]
    out = torch.empty(STEPS, N, device="cuda")
    reduced: list[torch.cuda.Event] = []
    for i in range(STEPS):
        if i >= depth:
            compute.wait_event(reduced[i - depth])  # edge: load-bearing
        inputs[i % depth].fill_(i)
        reduce.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            out[i].copy_(inputs[i % depth])
        reduced.append(reduce.record_event())  # edge: load-bearing
    with torch.cuda.stream(reduce):
        return out.cpu()


def newest(depth: int = 2) -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    inputs = [torch.empty(N, device="cuda") for _ in range(depth)]
    out = torch.empty(STEPS, N, device="cuda")
    reduced: list[torch.cuda.Event] = []
    for i in range(STEPS):
        if i >= depth:
            compute.wait_event(reduced[i - 1])  # edge: load-bearing; diag: over-wait
        inputs[i % depth].fill_(i)
        reduce.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            out[i].copy_(inputs[i % depth])
        reduced.append(reduce.record_event())  # edge: load-bearing
    with torch.cuda.stream(reduce):
        return out.cpu()
