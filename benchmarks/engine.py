"""The engine on a real GPU: what each structure does per step, and its time relative to off.

    python -m benchmarks.engine

The times are of one run on models that are far too small for a GPU: they compare host work.
"""

from __future__ import annotations

import statistics
import time
from pathlib import Path

import torch

from engine import EngineConfig, Flags, SamplingParams
from engine.core import EngineCore
from engine.request import Request

CHECKPOINTS = Path(__file__).parents[1] / "engine" / "checkpoints"
WAYS = {
    "off": Flags(),
    "off, depth 1": Flags(sched=False),
    "on": Flags(executor=True),
    "on, one slot": Flags(executor=True, executor_no_dbuf=True),
}
REQUESTS, TOKENS, ROUNDS = 8, 64, 5


def decode(core: EngineCore, round_: int) -> float:
    """Seconds for all requests."""
    begin = time.perf_counter()
    for row in range(REQUESTS):
        params = SamplingParams(max_tokens=TOKENS, ignore_eos=True)
        core.add(Request(f"{round_}.{row}", (5 + row, 9), params))
    while core.has_work():
        core.step()
    return time.perf_counter() - begin


def main() -> None:
    if not torch.cuda.is_available():
        raise SystemExit("benchmarks.engine: no CUDA device")
    print(torch.cuda.get_device_name(), torch.__version__)
    for kind in ("dense", "moe"):
        times: dict[str, float] = {}
        for name, flags in WAYS.items():
            settings = EngineConfig(
                CHECKPOINTS / kind, device="cuda", block_size=128, num_blocks=REQUESTS * 2,
                max_num_seqs=REQUESTS, max_num_batched_tokens=64, max_model_len=128, flags=flags,
            )  # fmt: skip
            core = EngineCore(settings)
            decode(core, -1)
            times[name] = statistics.median(decode(core, i) for i in range(ROUNDS))
            counters = core.counters
            core.close()
            print(
                f"{kind:6}{name:14}{times[name] / times['off']:6.2f} of off,"
                f" {counters.captures} captures, {counters.replays} replays,"
                f" {counters.drains} drains, {counters.drain_skips} skipped"
            )


if __name__ == "__main__":
    main()
