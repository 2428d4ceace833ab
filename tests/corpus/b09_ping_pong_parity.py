"""B09: gradient buckets in two buffers, whose index is reset so that both are the first.

With the index right and no edge back, the program is right for two steps and wrong for three: the
bug needs a reduction that lags by two. Waiting for the whole reduction stream is right and hides
the overlap; the precise fix waits for the event of the buffer about to be overwritten.
"""

import torch

N = 8
SPIN = 1_000_000


def right(steps: int = 3) -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(steps)])


def parity() -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    bucket = [torch.empty(N, device="cuda") for _ in range(2)]  # buffer
    out = torch.empty(3, N, device="cuda")
    for i in range(3):
        index = 0  # cleared after every reduction
        bucket[index].fill_(i)  # second
        reduce.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            out[i].copy_(bucket[index])  # first
    with torch.cuda.stream(reduce):
        return out.cpu()


def no_reverse(steps: int = 3) -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    bucket = [torch.empty(N, device="cuda") for _ in range(2)]  # buffer
    out = torch.empty(steps, N, device="cuda")
    for i in range(steps):
        bucket[i % 2].fill_(i)  # second
        reduce.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            out[i].copy_(bucket[i % 2])  # first
    with torch.cuda.stream(reduce):
        return out.cpu()


def full_wait() -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    bucket = [torch.empty(N, device="cuda") for _ in range(2)]
    out = torch.empty(3, N, device="cuda")
    for i in range(3):
        bucket[i % 2].fill_(i)
        reduce.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            out[i].copy_(bucket[i % 2])
        compute.wait_stream(reduce)  # edge: load-bearing; diag: over-wait
    with torch.cuda.stream(reduce):
        return out.cpu()


def per_buffer() -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    bucket = [torch.empty(N, device="cuda") for _ in range(2)]
    reduced = [torch.cuda.Event(), torch.cuda.Event()]
    out = torch.empty(3, N, device="cuda")
    for i in range(3):
        if i >= 2:
            compute.wait_event(reduced[i % 2])  # edge: load-bearing
        bucket[i % 2].fill_(i)
        reduce.wait_stream(compute)  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            out[i].copy_(bucket[i % 2])
            reduced[i % 2].record(reduce)  # edge: load-bearing
    with torch.cuda.stream(reduce):
        return out.cpu()
