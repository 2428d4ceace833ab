"""Mutations of what is no sync call: same-stream order, lifetimes, predicates, accounting.

redgreen takes sync calls out by itself; here one mechanism of the engine is broken from outside.
``mutated(name)`` is the subject and ``whole(name)`` the same program with the mechanism in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any

import torch

from engine import Faults
from engine import runner as runner_module
from engine.decode_graph import DecodeGraphs, GraphSlot
from engine.inputs import StepInputs
from engine.kv_cache import DeviceCache
from engine.mirror import DeviceMirror
from engine.models import Qwen35
from engine.runner import ModelRunner
from tests.engine import subjects
from tests.engine.harness import ON, ONE_SLOT

Context = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True)
class Mutation:
    """What is broken, and the configuration in which it is looked at."""

    context: Context = nullcontext
    fault: str = ""
    changes: dict[str, Any] = field(default_factory=dict)


def mutated(name: str) -> Any:
    mutation = MUTATIONS[name]
    faults = Faults(mutation.fault) if mutation.fault else None
    with mutation.context():
        return subjects.decode(faults=faults, **{"flags": ON, **mutation.changes})


def whole(name: str) -> Any:
    return subjects.decode(**{"flags": ON, **MUTATIONS[name].changes})


# -- how things are broken ----------------------------------------------------------------------


@contextmanager
def _patched(owner: Any, name: str, value: Any) -> Iterator[None]:
    before = getattr(owner, name)
    setattr(owner, name, value)
    try:
        yield
    finally:
        setattr(owner, name, before)


@contextmanager
def _elsewhere(owner: Any, name: str, joined: bool) -> Iterator[None]:
    """``owner.name`` runs on a stream that waits for MAIN at its first use and before a slot's cold
    pass, not again; with ``joined`` MAIN waits for it each time."""
    original, side = getattr(owner, name), list[torch.cuda.Stream]()

    def moved(*arguments: Any, **options: Any) -> Any:
        if torch.cuda.is_current_stream_capturing():
            return original(*arguments, **options)
        if not side:
            side.append(torch.cuda.Stream())
            side[0].wait_stream(torch.cuda.current_stream())
        if isinstance(arguments[0], GraphSlot) and not arguments[0].warm:
            side[0].wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side[0]):
            result = original(*arguments, **options)
        if joined:
            torch.cuda.current_stream().wait_stream(side[0])
        return result

    with _patched(owner, name, moved):
        yield


def elsewhere(owner: Any, name: str, *, joined: bool = False, **changes: Any) -> Mutation:
    return Mutation(lambda: _elsewhere(owner, name, joined), changes=changes)


def patched(owner: Any, name: str, value: Any, **changes: Any) -> Mutation:
    return Mutation(lambda: _patched(owner, name, value), changes=changes)


def fault(name: str, **changes: Any) -> Mutation:
    return Mutation(fault=name, changes=changes)


def _copies_before_the_host_writes(self: DecodeGraphs, slot: GraphSlot, inputs: StepInputs) -> None:
    slot.copy_inputs()
    inputs.write(slot.host)


_pinned: list[torch.Tensor] = []


def _ids_through_one_pinned_buffer(self: ModelRunner, inputs: StepInputs) -> torch.Tensor:
    if not _pinned:
        _pinned.append(torch.zeros(16, dtype=torch.int64, pin_memory=True))
    source = _pinned[0][: inputs.tokens]
    source.copy_(torch.tensor(inputs.ids))
    ids = source.to("cuda", non_blocking=True)
    self._mirror.combine(ids, inputs.carried)
    return self._model.embed(ids)


MIXED = {"lengths": (5, 3), "prompt": 9, "max_num_batched_tokens": 4}
JOINING = {"lengths": (7, 14, 4), "prompt": 1}  # the third joins while replays are in flight

MUTATIONS: dict[str, Mutation] = {
    # same-stream order: moved to another stream
    "combine elsewhere": elsewhere(DeviceMirror, "combine", joined=True),
    "scatter elsewhere": elsewhere(DeviceMirror, "scatter"),
    "row moves elsewhere": elsewhere(DeviceMirror, "move_rows"),
    "staging elsewhere": elsewhere(GraphSlot, "copy_inputs"),
    "staging without back edge": elsewhere(GraphSlot, "copy_inputs", joined=True),
    "staging without back edge, one slot": elsewhere(
        GraphSlot, "copy_inputs", joined=True, flags=ONE_SLOT
    ),
    "embedding elsewhere": elsewhere(Qwen35, "embed"),
    "sampler elsewhere": elsewhere(runner_module, "sample"),
    "state reset elsewhere": elsewhere(DeviceCache, "reset_state", lengths=(4, 4, 4)),
    # the class is looked up late: the virtual GPU brings its own
    "replay elsewhere": Mutation(lambda: _elsewhere(torch.cuda.CUDAGraph, "replay", False)),
    # program order of the host
    "copies before the host writes": patched(
        DecodeGraphs, "_refresh", _copies_before_the_host_writes
    ),
    "one pinned source for ids": patched(
        ModelRunner, "_embed", _ids_through_one_pinned_buffer, **JOINING
    ),
    # predicates and lifetimes
    "drain always skipped": fault("E07.always-skip", **MIXED),
    "poison": fault("E08.poison"),
    "ring collapsed": fault("E13.collapse"),
    "one output slot": fault("E44.one-slot"),
    "given-up slot is free at once": fault("E45.skip-wait", lengths=(3,), prompt=9,
                                           max_num_batched_tokens=4),
    # accounting: wrong on every schedule, so only the reference tells
    "placeholders decoded": fault("E01.combine-host-ids"),
    "row moves skipped": fault("E03.skip-row-moves"),
    "mirror not fed": patched(DeviceMirror, "scatter", lambda self, sampled: None, depth=1),
    "live padding": fault("E35.live-padding", lengths=(5, 5, 5), max_num_seqs=4),
    "state kept": fault("E53.keep-state", lengths=(4, 4), max_num_seqs=1),
}  # fmt: skip
