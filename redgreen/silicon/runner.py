"""Runs a subject on the real GPU, each run in a forked child that initialises CUDA for itself.

CUDA cannot be used in a child if the parent has initialised it (CUDA C++ Programming Guide; torch
raises "Cannot re-initialize CUDA in forked subprocess"). So the template imports torch and never
touches the device; what a library does while it is imported happens in each child.
"""

from __future__ import annotations

from functools import partial

from ..child import GPU
from ..faults import Fault
from ..isolation import ForkedRunner, _import_quietly
from ..schedule import SERIAL, Schedule
from ..subject import Subject
from . import PATIENCE, RealGPU, prepare_environment

_HARMLESS = {"torch", "sympy", "mpmath", "numpy", "cuda", "networkx", "jinja2"}


class DeviceRunner(ForkedRunner):
    """A `Runner` on the current CUDA device."""

    real = True

    def __init__(self, subject: Subject, *, timeout: float) -> None:
        prepare_environment()
        super().__init__(subject, timeout=timeout)
        self._patience = min(PATIENCE, timeout / 3)

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
                _import_quietly(name)


def _once(subject: Subject) -> None:
    """The program, its output read as the measured run reads it."""
    from .. import child

    child._outcome(subject)
