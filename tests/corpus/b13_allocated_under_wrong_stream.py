"""B13: a buffer allocated under the default stream is used only on the reduction stream.

When it is dropped, its block goes back to the default stream's pool at once and to the default
stream's next allocation, while the reduction still reads it.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0)


def buggy() -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    gradient = torch.empty(N, device="cuda")  # buffer
    gradient.fill_(1)
    reduce.wait_stream(compute)  # edge: load-bearing
    with torch.cuda.stream(reduce):
        torch.cuda._sleep(SPIN)
        out.copy_(gradient)  # first
    del gradient
    other = torch.empty(N, device="cuda")  # buffer
    other.fill_(9)  # second
    compute.wait_stream(reduce)  # edge: load-bearing
    return out


def buggy_wrong_stream() -> torch.Tensor:
    """record_stream names a stream that never touches the buffer."""
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    idle = torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    gradient = torch.empty(N, device="cuda")  # buffer
    gradient.fill_(1)
    reduce.wait_stream(compute)  # edge: load-bearing
    with torch.cuda.stream(reduce):
        torch.cuda._sleep(SPIN)
        out.copy_(gradient)  # first
    gradient.record_stream(idle)  # edge: redundant
    del gradient
    other = torch.empty(N, device="cuda")  # buffer
    other.fill_(9)  # second
    compute.wait_stream(reduce)  # edge: load-bearing
    return out


def fixed_record_stream() -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    gradient = torch.empty(N, device="cuda")
    gradient.fill_(1)
    reduce.wait_stream(compute)  # edge: load-bearing
    with torch.cuda.stream(reduce):
        torch.cuda._sleep(SPIN)
        out.copy_(gradient)
    gradient.record_stream(reduce)  # edge: load-bearing
    del gradient
    other = torch.empty(N, device="cuda")
    other.fill_(9)
    compute.wait_stream(reduce)  # edge: load-bearing
    return out


def fixed_back_wait() -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    gradient = torch.empty(N, device="cuda")
    gradient.fill_(1)
    reduce.wait_stream(compute)  # edge: load-bearing
    with torch.cuda.stream(reduce):
        torch.cuda._sleep(SPIN)
        out.copy_(gradient)
    compute.wait_stream(reduce)  # edge: load-bearing
    del gradient
    other = torch.empty(N, device="cuda")
    other.fill_(9)
    return out


def fixed_allocation() -> torch.Tensor:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    with torch.cuda.stream(reduce):
        gradient = torch.empty(N, device="cuda")
    gradient.fill_(1)
    reduce.wait_stream(compute)  # edge: load-bearing
    with torch.cuda.stream(reduce):
        torch.cuda._sleep(SPIN)
        out.copy_(gradient)
    del gradient
    other = torch.empty(N, device="cuda")
    other.fill_(9)
    compute.wait_stream(reduce)  # edge: load-bearing
    return out


def dead() -> torch.Tensor:
    """Allocated and filled under the reduction stream: its wait for compute orders nothing."""
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    with torch.cuda.stream(reduce):
        gradient = torch.empty(N, device="cuda")
        gradient.fill_(1)
    reduce.wait_stream(compute)  # edge: redundant
    with torch.cuda.stream(reduce):
        torch.cuda._sleep(SPIN)
        out.copy_(gradient)
    del gradient
    other = torch.empty(N, device="cuda")
    other.fill_(9)
    compute.wait_stream(reduce)  # edge: load-bearing
    return out
