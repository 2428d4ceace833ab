"""Random numbers take seed and offset at enqueue: streams may run in any order."""

import torch

N = 8
SPIN = 1_000_000


def two_streams() -> list[torch.Tensor]:
    streams = [torch.cuda.Stream(), torch.cuda.Stream()]
    torch.manual_seed(0)
    out: list[torch.Tensor] = []
    for stream in streams:
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SPIN)
            out.append(torch.randn(N, device="cuda"))
    for stream in streams:
        torch.cuda.current_stream().wait_stream(stream)  # edge: load-bearing
    return out
