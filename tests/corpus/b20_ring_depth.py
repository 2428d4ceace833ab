"""B20: a ring of two pinned slots is deep enough only because a normal step waits for the last one.

Steps of the other type return early and skip the wait; the host laps the device. A bad step is
harmless if it is the last: what matters is the sequence. The host wait of the last step of a finite
run orders nothing, so verdicts are per call site.
"""

import torch

N = 8
SPIN = 1_000_000


def right(kinds: str) -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(len(kinds))])


def ring(kinds: str = "nnn") -> torch.Tensor:
    """One step per letter: n is a normal step, b one without the host wait."""
    stream = torch.cuda.Stream()
    slots = [torch.empty(N, pin_memory=True), torch.empty(N, pin_memory=True)]  # buffer
    device = torch.empty(N, device="cuda")
    out = torch.empty(len(kinds), N, device="cuda")
    copied: list[torch.cuda.Event] = []
    for i, kind in enumerate(kinds):
        slots[i % 2].fill_(i)  # second
        with torch.cuda.stream(stream):
            torch.cuda._sleep(SPIN)
            device.copy_(slots[i % 2], non_blocking=True)  # first
            out[i].copy_(device)
        copied.append(stream.record_event())  # edge record: load-bearing
        if kind == "n" and i > 0:
            copied[i - 1].synchronize()  # edge wait: load-bearing
    with torch.cuda.stream(stream):
        return out.cpu()
