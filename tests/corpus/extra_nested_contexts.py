"""Stream contexts inside stream contexts; leaving one restores the one around it."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 3.0)


def joined() -> torch.Tensor:
    outer, inner = torch.cuda.Stream(), torch.cuda.Stream()
    a, b, out = (torch.empty(N, device="cuda") for _ in range(3))
    with torch.cuda.stream(outer):
        a.fill_(1)
        with torch.cuda.stream(inner):
            inner.wait_stream(outer)  # edge: load-bearing
            torch.cuda._sleep(SPIN)
            torch.add(a, 1, out=b)
            with torch.cuda.stream(None):
                b.mul_(1)  # still on the inner stream
        outer.wait_stream(inner)  # edge: load-bearing
        torch.add(a, b, out=out)
        return out.cpu()


def not_joined() -> torch.Tensor:
    outer, inner = torch.cuda.Stream(), torch.cuda.Stream()
    a = torch.empty(N, device="cuda")
    b = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(N, device="cuda")
    with torch.cuda.stream(outer):
        a.fill_(1)
        with torch.cuda.stream(inner):
            inner.wait_stream(outer)  # edge: load-bearing
            torch.cuda._sleep(SPIN)
            torch.add(a, 1, out=b)  # first
        torch.add(a, b, out=out)  # second
        return out.cpu()
