"""B40: a pageable host-to-device copy has read its source when it returns, not written its target.

The reports copy on the legacy stream with a raw cudaMemcpy. What torch can reach is the
``non_blocking`` copy on the default stream beside a non-blocking pool stream; without
``non_blocking`` the call waits, and then the wait between the streams is dead.
"""

import torch

N = 8


def right() -> torch.Tensor:
    return torch.full((N,), 3.0)


def buggy() -> torch.Tensor:
    engine = torch.cuda.Stream()
    host = torch.full((N,), 3.0)
    device = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(N, device="cuda")
    device.copy_(host, non_blocking=True)  # first
    host.fill_(99)  # harmless: the source was consumed
    with torch.cuda.stream(engine):
        out.copy_(device)  # second
        return out.cpu()


def fixed() -> torch.Tensor:
    engine = torch.cuda.Stream()
    host = torch.full((N,), 3.0)
    device, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    device.copy_(host, non_blocking=True)
    host.fill_(99)
    engine.wait_stream(torch.cuda.default_stream())  # edge: load-bearing
    with torch.cuda.stream(engine):
        out.copy_(device)
        return out.cpu()


def dead() -> torch.Tensor:
    engine = torch.cuda.Stream()
    host = torch.full((N,), 3.0)
    device, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    device.copy_(host)
    engine.wait_stream(torch.cuda.default_stream())  # edge: redundant
    with torch.cuda.stream(engine):
        out.copy_(device)
        return out.cpu()
