"""B43: storage released without a Python reference being dropped, while a copy from it is pending.

``resize_(0)`` and ``.data = other`` free a block just as ``del`` does. In a chain of three streams
only the last user has to be recorded: the one before it is done by then.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> list[float]:
    return [1.0] * N


def right_chain() -> torch.Tensor:
    return torch.full((N,), 2.0)


def buggy_resize() -> list[float]:
    compute, copy = torch.cuda.current_stream(), torch.cuda.Stream()
    host = torch.full((N,), -1.0, pin_memory=True)
    tensor = torch.empty(N, device="cuda")  # buffer
    tensor.fill_(1)
    copy.wait_stream(compute)  # edge: load-bearing
    with torch.cuda.stream(copy):
        torch.cuda._sleep(SPIN)
        host.copy_(tensor, non_blocking=True)  # first
    tensor.untyped_storage().resize_(0)
    other = torch.empty(N, device="cuda")  # buffer
    other.fill_(9)  # second
    copy.synchronize()  # edge: load-bearing
    return host.tolist()


def buggy_data() -> list[float]:
    compute, copy = torch.cuda.current_stream(), torch.cuda.Stream()
    host = torch.full((N,), -1.0, pin_memory=True)
    tensor = torch.empty(N, device="cuda")  # buffer
    tensor.fill_(1)
    copy.wait_stream(compute)  # edge: load-bearing
    with torch.cuda.stream(copy):
        torch.cuda._sleep(SPIN)
        host.copy_(tensor, non_blocking=True)  # first
    tensor.data = torch.empty(0, device="cuda")
    other = torch.empty(N, device="cuda")  # buffer
    other.fill_(9)  # second
    copy.synchronize()  # edge: load-bearing
    return host.tolist()


def fixed() -> list[float]:
    compute, copy = torch.cuda.current_stream(), torch.cuda.Stream()
    host = torch.full((N,), -1.0, pin_memory=True)
    tensor = torch.empty(N, device="cuda")
    tensor.fill_(1)
    copy.wait_stream(compute)  # edge: load-bearing
    with torch.cuda.stream(copy):
        torch.cuda._sleep(SPIN)
        host.copy_(tensor, non_blocking=True)
    tensor.record_stream(copy)  # edge: load-bearing
    tensor.untyped_storage().resize_(0)
    other = torch.empty(N, device="cuda")
    other.fill_(9)
    copy.synchronize()  # edge: load-bearing
    return host.tolist()


def chain() -> torch.Tensor:
    compute, pack, send = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    out = torch.empty(N, device="cuda")
    tensor = torch.empty(N, device="cuda")
    tensor.fill_(1)
    pack.wait_stream(compute)  # edge: load-bearing
    with torch.cuda.stream(pack):
        tensor.add_(1)
    tensor.record_stream(pack)  # edge: redundant
    send.wait_stream(pack)  # edge: load-bearing
    with torch.cuda.stream(send):
        torch.cuda._sleep(SPIN)
        out.copy_(tensor)
    tensor.record_stream(send)  # edge: load-bearing
    del tensor
    other = torch.empty(N, device="cuda")
    other.fill_(9)
    with torch.cuda.stream(send):
        return out.cpu()
