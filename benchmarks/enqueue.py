"""What it costs to enqueue an operator, against FakeTensorMode, which also only computes metadata.

The operators run later (the device executes nothing until it is asked to), so this is the price of
dispatch, allocation, recording and order alone.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from redgreen.schedule import LAZY
from redgreen.virtual import VirtualGPU

ROUNDS, OPERATORS = 7, 2000


def work(device: str) -> Callable[[], None]:
    a, b = torch.ones(16, 16, device=device), torch.ones(16, 16, device=device)

    def run() -> None:
        for _ in range(OPERATORS // 4):
            c = a + b
            c.mul_(2)
            d = c @ b
            d.relu()

    return run


def per_operator(run: Callable[[], None]) -> float:
    """Microseconds."""
    start = time.perf_counter()
    run()
    return (time.perf_counter() - start) / OPERATORS * 1e6


def virtual() -> float:
    with VirtualGPU(LAZY) as gpu:
        run = work("cuda")
        run()
        taken = per_operator(run)
        gpu.finish()
    return taken


def fake() -> float:
    with FakeTensorMode():
        run = work("cpu")
        run()
        return per_operator(run)


def main() -> None:
    torch.set_num_threads(1)
    gc.disable()  # as redgreen's runs do; for both
    virtual(), fake()
    pairs = [(virtual(), fake()) for _ in range(ROUNDS)]  # side by side, so that both see the load
    ours, theirs = (statistics.median(column) for column in zip(*pairs, strict=True))
    ratio = statistics.median(a / b for a, b in pairs)
    print(f"operators [16, 16] float32: add, mul_, matmul, relu; {ROUNDS} rounds of {OPERATORS}")
    print(f"enqueued on the virtual GPU  {ours:6.1f} us")
    print(f"FakeTensorMode               {theirs:6.1f} us")
    print(f"ratio                        {ratio:6.2f}")


if __name__ == "__main__":
    main()
