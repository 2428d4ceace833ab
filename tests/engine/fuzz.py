"""Drawn sequences of requests, aborts and steps, in drawn configurations, on drawn schedules."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from engine import EngineConfig, Faults, Flags, SamplingParams
from engine.core import EngineCore
from engine.request import FinishReason, Request
from redgreen.isolation import virtual_gpu
from redgreen.schedule import LAZY, SERIAL, Schedule
from tests.engine.harness import OFF, ON, config, prompts, raw


@dataclass(frozen=True)
class Add:
    """A request that joins before the next step."""

    prompt: int  # tokens
    tokens: int
    seed: int
    kind: str

    def params(self) -> SamplingParams:
        kinds: dict[str, dict[str, Any]] = {
            "greedy": {},
            "drawn": {"temperature": 1.0, "seed": self.seed},
            "penalized": {"repetition_penalty": 2.0},
        }
        return SamplingParams(max_tokens=self.tokens, ignore_eos=True, **kinds[self.kind])


@dataclass(frozen=True)
class Abort:
    """Ends the request that was added ``back`` requests ago, if it runs."""

    back: int


@dataclass(frozen=True)
class Steps:
    count: int


@dataclass(frozen=True)
class Case:
    """One example."""

    operations: list[Add | Abort | Steps]
    settings: dict[str, Any]
    schedule: Schedule = field(default=SERIAL)


WAYS: list[dict[str, Any]] = [
    {"flags": ON},
    {"flags": OFF},
    {"flags": ON, "depth": 3},
    {"flags": Flags(executor=True, executor_no_dbuf=True)},
    {"flags": Flags(device_mirror=False)},
    {"flags": ON, "graph_query_len": 2},
]
ADDS = st.builds(
    Add, st.integers(1, 11), st.integers(1, 9), st.integers(0, 3),
    st.sampled_from(["greedy", "drawn", "penalized"]),
)  # fmt: skip
OPERATIONS = st.lists(
    ADDS | st.builds(Abort, st.integers(0, 3)) | st.builds(Steps, st.integers(1, 4)),
    min_size=1,
    max_size=10,
)
SETTINGS = st.builds(
    lambda way, seqs, tokens, blocks: {
        **way, "max_num_seqs": seqs, "max_num_batched_tokens": max(seqs, tokens),
        "num_blocks": blocks, "max_model_len": 20,
    },
    st.sampled_from(WAYS), st.integers(1, 4), st.integers(3, 16), st.integers(5, 12),
)  # fmt: skip
SCHEDULES = st.just(SERIAL) | st.just(LAZY) | st.builds(
    lambda seed: Schedule(policy="random", seed=seed), st.integers(0, 5)
)  # fmt: skip
CASES = st.builds(Case, OPERATIONS, SETTINGS, SCHEDULES)


def play(
    settings: EngineConfig, operations: list[Add | Abort | Steps], faults: str = ""
) -> tuple[list[Request], dict[str, bytes], EngineCore]:
    """All requests at their ends, and every byte of pages and states."""
    core = EngineCore(settings, faults=Faults(faults) if faults else None)
    requests: list[Request] = []
    for operation in operations:
        match operation:
            case Add():
                ids = prompts(1, longest=1, seed=len(requests))[0] * operation.prompt
                requests.append(Request(str(len(requests)), tuple(ids), operation.params()))
                core.add(requests[-1])
            case Abort():
                for request in requests[-1 - operation.back :][:1]:
                    core.abort(request.id)
            case Steps():
                for _ in range(operation.count):
                    core.step()
    while core.has_work():
        core.step()
    cache = core.runner.cache_bytes()
    core.close()
    state = {name: raw(part) for name, part in cache.items()}
    return requests, state, core


def disagreement(model: Path, case: Case, faults: str = "") -> str:
    """"" if the case is right, else what is wrong with it.

    Tokens are compared with the plain engine on the CPU: those of an aborted request begin alike.
    Bytes are compared with the same engine on the serial schedule: steps are composed alike there.
    """
    settings = config(model, "cuda", **case.settings)
    with virtual_gpu(case.schedule, frozenset(), allocator="native", step_limit=None):
        found, state, core = play(settings, case.operations, faults)
    adds = [operation for operation in case.operations if isinstance(operation, Add)]
    plain = config(model, num_blocks=64, max_model_len=20)
    expected, _, _ = play(plain, list(adds))
    for request, good in zip(found, expected, strict=True):
        same = good.output_ids
        if request.finish_reason is FinishReason.ABORT:
            same = same[: len(request.output_ids)]
        if request.output_ids != same:
            return f"request {request.id}: {request.output_ids}, not {same}"
    cache = core.scheduler.cache
    if (cache.free_blocks, cache.free_slots) != (settings.num_blocks, settings.max_num_seqs):
        return f"{cache.free_blocks} blocks and {cache.free_slots} slots are free at the end"
    if case.schedule != SERIAL:
        with virtual_gpu(SERIAL, frozenset(), allocator="native", step_limit=None):
            _, serial, _ = play(settings, case.operations, faults)
        differing = [name for name in state if state[name] != serial[name]]
        if differing:
            return f"bytes of {differing[0]} depend on the schedule"
    return ""
