"""Executing one decode step on the virtual GPU, against plain CPU execution of the same operators.

The step is the README's client's: its model and its shapes, three requests of one token each. The
enqueue is timed apart: what is compared is the execution of the queue with the operators' own work.
"""

from __future__ import annotations

import gc
import statistics
import time
from collections.abc import Callable

import torch

from examples.continuous_batching import PROMPTS, model
from redgreen.schedule import LAZY
from redgreen.virtual import VirtualGPU

ROUNDS = 15


def decode(device: str) -> Callable[[], torch.Tensor]:
    """One step of decoding behind a cache of each prompt, padded to one length."""
    length = max(map(len, PROMPTS))
    ids = torch.tensor([[0] * (length - len(p)) + p for p in PROMPTS], device=device)
    llm = model().to(device)

    @torch.no_grad()
    def step() -> torch.Tensor:
        logits: torch.Tensor = llm(ids[:, -1:], position_ids=last, use_cache=False).logits
        return logits

    last = torch.full((len(PROMPTS), 1), length - 1, device=device)
    return step


def seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def on_virtual() -> tuple[float, float]:
    """Enqueue and execution of one step."""
    with VirtualGPU(LAZY) as gpu:
        step = decode("cuda")
        step()
        torch.cuda.synchronize()
        results = []
        enqueue = seconds(lambda: results.append(step()))
        execute = seconds(torch.cuda.synchronize)
        gpu.finish()
    return enqueue, execute


def main() -> None:
    torch.set_num_threads(1)
    gc.disable()  # as redgreen's runs do; for both
    step = decode("cpu")
    step(), on_virtual()
    rows = [(*on_virtual(), seconds(step)) for _ in range(ROUNDS)]
    columns = zip(*rows, strict=True)
    enqueue, execute, plain = (statistics.median(column) * 1e3 for column in columns)
    ratio = statistics.median(b / c for _, b, c in rows)
    shape = tuple(step().shape)
    print(f"one decode step, {len(PROMPTS)} rows of 1 token, logits {shape}, float32")
    print(f"enqueue on the virtual GPU   {enqueue:6.2f} ms")
    print(f"execution of the queue       {execute:6.2f} ms")
    print(f"the same operators, CPU      {plain:6.2f} ms")
    print(f"ratio of execution           {ratio:6.2f}")
    print(f"ratio of enqueue + execution {statistics.median((a + b) / c for a, b, c in rows):6.2f}")


if __name__ == "__main__":
    main()
