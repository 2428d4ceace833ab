"""Runs a subject on the real GPU, each run in a forked child that initialises CUDA for itself.

CUDA cannot be used in a child if the parent has initialised it (CUDA C++ Programming Guide; torch
raises "Cannot re-initialize CUDA in forked subprocess"). So the template imports torch and never
touches the device; what a library does while it is imported happens in each child.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from ..child import GPU
from ..faults import Fault
from ..isolation import ForkedRunner, import_quietly
from ..run import Run
from ..schedule import SERIAL, Order, Schedule
from ..subject import Subject
from ..trace import Kind, Trace
from . import PATIENCE, RealGPU, prepare_environment

_HARMLESS = {"torch", "sympy", "mpmath", "numpy", "cuda", "networkx", "jinja2"}


class DeviceRunner(ForkedRunner):
    """A `Runner` on the current CUDA device."""

    real = True

    def __init__(self, subject: Subject, *, timeout: float) -> None:
        prepare_environment()
        super().__init__(subject, timeout=timeout)
        self._patience = min(PATIENCE, timeout / 3)
        self._recorded: Trace | None = None  # of the latest serial run without faults

    def run(
        self, schedule: Schedule, faults: frozenset[Fault] = frozenset(),
        step_limit: int | None = None,
    ) -> Run:  # fmt: skip
        """Execute once. Orders are between what gates can hold; the result speaks of the given.

        The calls of host threads are left in the order in which they come, and what was asked of
        them is given up: when a step is issued here, the device has been called already.
        """
        forced, meant = realizable(replace(schedule, calls=()), self._recorded)
        run = super().run(forced, faults, step_limit)
        if schedule == SERIAL and not faults:
            self._recorded = run.trace
        self.digests[schedule, faults] = run.outcome.digest()
        broken, held, given_up = (tuple(meant.get(order, order) for order in orders)
                                  for orders in (run.broken, run.held, run.given_up))
        return replace(run, schedule=schedule, broken=broken, held=held,
                       given_up=(*given_up, *schedule.calls))

    def _make(
        self, schedule: Schedule = SERIAL, faults: frozenset[Fault] = frozenset(),
        step_limit: int | None = None,
    ) -> GPU:  # fmt: skip
        return RealGPU(schedule, faults, step_limit=step_limit, patience=self._patience,
                       warm=partial(_once, self.subject))

    def _warm_up(self) -> None:
        """Nothing in the template; each child warms itself up."""

    def _import_as_child_did(self, names: list[str]) -> None:
        """Of what a child imported, what is known not to initialise CUDA: torch imports much of
        itself late, which takes longer than a run."""
        for name in names:
            if name.partition(".")[0] in _HARMLESS:
                import_quietly(name)


def realizable(
    schedule: Schedule, recorded: Trace | None
) -> tuple[Schedule, dict[Order, Order]]:
    """The same schedule by orders that gates can keep, and which order each stands for.

    A record has no gate: it is complete as soon as what is in front of it on its stream is. To hold
    it is to hold the last kernel or copy before it.
    """
    meant: dict[Order, Order] = {}
    for order in schedule.orders:
        meant.setdefault(Order(order.first, _gated(order.second, recorded)), order)
    return replace(schedule, orders=tuple(meant)), meant


def _gated(label: str, recorded: Trace | None) -> str:
    steps = recorded.steps if recorded is not None else []
    step = next((s for s in steps if s.label == label), None)
    if step is None or step.kind is not Kind.PUBLISH:
        return label
    before = [s for s in steps[: step.index] if s.agent == step.agent and s.kind is Kind.ACCESS]
    return before[-1].label if before else label


def _once(subject: Subject) -> None:
    """The program, its output read as the measured run reads it."""
    from .. import child

    child.outcome_of(subject)
