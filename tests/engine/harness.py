"""Runs the engine on fixed prompts and collects what tests compare."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from engine import EngineConfig, Faults, Flags, SamplingParams
from engine.core import EngineCore
from engine.counters import Counters
from engine.request import Request

OFF = Flags()
ON = Flags(executor=True)
ONE_SLOT = Flags(executor=True, executor_no_dbuf=True)
# Every way to run asynchronously; all give the same tokens.
WAYS: dict[str, dict[str, Any]] = {
    "off": {"flags": OFF},
    "off, depth 1": {"flags": Flags(sched=False)},
    "off, host mirror": {"flags": Flags(device_mirror=False)},
    "on": {"flags": ON},
    "on, depth 1": {"flags": Flags(sched=False, executor=True)},
    "on, depth 3": {"flags": ON, "depth": 3},
    "on, one slot": {"flags": ONE_SLOT},
}


def prompts(count: int, *, vocab: int = 64, longest: int = 40, seed: int = 0) -> list[list[int]]:
    """The same prompts in every run, of 1 to ``longest`` tokens, none of them the end token 0."""
    draw = random.Random(seed)
    lengths = (draw.randint(1, longest) for _ in range(count))
    return [[draw.randrange(1, vocab) for _ in range(length)] for length in lengths]


def config(model: Path, device: str = "cpu", **changes: Any) -> EngineConfig:
    """Small sizes, so that pages, columns and buckets are all crossed; flags off, whatever the
    environment says."""
    sizes: dict[str, Any] = {
        "block_size": 4, "num_blocks": 128, "max_num_seqs": 8, "max_num_batched_tokens": 64,
        "max_model_len": 128, "flags": OFF,
    }  # fmt: skip
    return EngineConfig(model, device=device, **{**sizes, **changes})


@dataclass(frozen=True)
class Result:
    tokens: list[list[int]]
    counters: Counters
    cache: dict[str, Tensor]
    preemptions: int

    def cache_bytes(self) -> dict[str, bytes]:
        return {name: raw(tensor) for name, tensor in self.cache.items()}


def raw(tensor: Tensor) -> bytes:
    """The bytes of a host tensor of any dtype."""
    return tensor.contiguous().view(torch.uint8).numpy().tobytes()


def params(tokens: int, **changes: Any) -> SamplingParams:
    return SamplingParams(max_tokens=tokens, **{"ignore_eos": True, **changes})


def run(
    settings: EngineConfig,
    given: Sequence[Sequence[int]],
    sampling: SamplingParams | Sequence[SamplingParams],
    *,
    faults: Faults | None = None,
    each_step: Callable[[EngineCore, int], None] = lambda core, step: None,
) -> Result:
    """All requests at once, to their ends; ``each_step`` is called before every step."""
    each = [sampling] * len(given) if isinstance(sampling, SamplingParams) else sampling
    core = EngineCore(settings, faults=faults)
    requests: list[Request] = []
    for name, (ids, own) in enumerate(zip(given, each, strict=True)):
        requests.append(Request(str(name), tuple(ids), own))
        core.add(requests[-1])
    step = 0
    while core.has_work():
        each_step(core, step)
        core.step()
        step += 1
    cache = core.runner.cache_bytes()
    core.close()
    tokens = [request.output_ids for request in requests]
    return Result(tokens, core.counters, cache, core.scheduler.preemptions)
