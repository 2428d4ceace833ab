"""B27: record_stream on a tensor that is allocated under and used by one stream does nothing.

The same line is needed where the tensor really crosses streams.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0)


def dead() -> torch.Tensor:
    compute = torch.cuda.current_stream()
    out = torch.empty(N, device="cuda")
    tensor = torch.empty(N, device="cuda")
    tensor.fill_(1)
    torch.cuda._sleep(SPIN)
    out.copy_(tensor)
    tensor.record_stream(compute)  # edge: redundant; diag: record-stream-on-allocating-stream
    del tensor
    other = torch.empty(N, device="cuda")
    other.fill_(9)
    return out


def twin() -> torch.Tensor:
    compute, side = torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    with torch.cuda.stream(side):
        tensor = torch.empty(N, device="cuda")
        tensor.fill_(1)
    compute.wait_stream(side)  # edge: load-bearing
    torch.cuda._sleep(SPIN)
    out.copy_(tensor)
    tensor.record_stream(compute)  # edge: load-bearing
    del tensor
    with torch.cuda.stream(side):
        other = torch.empty(N, device="cuda")
        other.fill_(9)
    return out


def twin_without() -> torch.Tensor:
    compute, side = torch.cuda.current_stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    with torch.cuda.stream(side):
        tensor = torch.empty(N, device="cuda")  # buffer
        tensor.fill_(1)
    compute.wait_stream(side)  # edge: load-bearing
    torch.cuda._sleep(SPIN)
    out.copy_(tensor)  # first
    del tensor
    with torch.cuda.stream(side):
        other = torch.empty(N, device="cuda")  # buffer
        other.fill_(9)  # second
    return out
