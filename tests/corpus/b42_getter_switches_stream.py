"""B42: a getter for the current stream creates and sets a new one at its first call."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0)


def buggy() -> torch.Tensor:
    streams: list[torch.cuda.Stream] = []

    def get_stream() -> torch.cuda.Stream:
        if not streams:
            streams.append(torch.cuda.Stream())
            torch.cuda.set_stream(streams[0])
        return streams[0]

    a = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(N, device="cuda")
    torch.cuda._sleep(SPIN)
    a.fill_(1)  # first
    get_stream()
    out.copy_(a)  # second
    result = out.cpu()
    torch.cuda.set_stream(torch.cuda.default_stream())
    return result


def fixed() -> torch.Tensor:
    streams: list[torch.cuda.Stream] = []

    def get_stream() -> torch.cuda.Stream:
        if not streams:
            old = torch.cuda.current_stream()
            streams.append(torch.cuda.Stream())
            streams[0].wait_stream(old)  # edge: load-bearing
            torch.cuda.set_stream(streams[0])
        return streams[0]

    a, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    torch.cuda._sleep(SPIN)
    a.fill_(1)
    get_stream()
    out.copy_(a)
    result = out.cpu()
    torch.cuda.set_stream(torch.cuda.default_stream())
    return result


def dead() -> torch.Tensor:
    """A configuration in which the first call comes before any work."""
    streams: list[torch.cuda.Stream] = []

    def get_stream() -> torch.cuda.Stream:
        if not streams:
            old = torch.cuda.current_stream()
            streams.append(torch.cuda.Stream())
            streams[0].wait_stream(old)  # edge: redundant
            torch.cuda.set_stream(streams[0])
        return streams[0]

    a, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    get_stream()
    torch.cuda._sleep(SPIN)
    a.fill_(1)
    get_stream()
    out.copy_(a)
    result = out.cpu()
    torch.cuda.set_stream(torch.cuda.default_stream())
    return result
