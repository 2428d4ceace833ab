"""One execution of a subject under one schedule with some faults, and what came of it."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal, Protocol

from .faults import Fault
from .schedule import Order, Schedule
from .trace import Trace

Status = Literal["returned", "raised", "died", "diverged", "timeout", "stuck"]


@dataclass(frozen=True, slots=True)
class Leaf:
    """One piece of an output: where it sits in the nested containers, what it is, its bytes."""

    path: str  # "[0]['logits']"
    form: str  # "tensor float32 (4, 8)", "int", "str", "error"
    data: bytes


@dataclass(frozen=True, slots=True)
class Outcome:
    """What an observer of the run sees. Two outcomes are equal iff all bytes are.

    raised: the subject raised (leaves hold the type and the first line of the message; where an
    asynchronous error surfaced is not part of it). died: the process ended (signal or exit).
    diverged: it did many times more steps than the recorded run. timeout, stuck: no outcome of
    the program at all; the watchdog ended the run (``detail`` has the threads' stacks).
    """

    status: Status
    leaves: tuple[Leaf, ...] = ()
    detail: str = field(default="", compare=False)  # traceback, stacks: for people

    def digest(self) -> str:
        h = hashlib.blake2b(self.status.encode(), digest_size=16)
        for leaf in self.leaves:
            for part in (leaf.path.encode(), leaf.form.encode(), leaf.data):
                h.update(len(part).to_bytes(8, "little") + part)
        return h.hexdigest()


@dataclass(slots=True)
class Run:
    """The evidence of one execution."""

    schedule: Schedule
    faults: frozenset[Fault]
    outcome: Outcome
    trace: Trace
    hits: Mapping[Fault, int] = field(default_factory=dict)  # how often each fault was reached
    broken: tuple[Order, ...] = ()  # orders that could not be kept
    # Poison: bytes that differed. A moved call or changed allocation: instances that were another.
    changed: Mapping[Fault, int] = field(default_factory=dict)
    given_up: tuple[Order, ...] = ()  # broken ones that might have been kept with more patience
    # On a real GPU: orders of which it was observed that the second had not run when the first had.
    held: tuple[Order, ...] = ()


@dataclass(frozen=True, slots=True)
class Record:
    """What a backend knows after a run; the outcome is the subject's."""

    trace: Trace
    hits: Mapping[Fault, int]
    broken: tuple[Order, ...] = ()
    changed: Mapping[Fault, int] = field(default_factory=dict)
    given_up: tuple[Order, ...] = ()
    held: tuple[Order, ...] = ()


def step_limit(recorded: Trace) -> int:
    """A run that makes more steps than this does not end."""
    return 20 * len(recorded.steps) + 1000


class Runner(Protocol):
    """A backend with a subject: runs it again from the same start state, as often as asked."""

    def run(
        self,
        schedule: Schedule,
        faults: frozenset[Fault] = frozenset(),
        step_limit: int | None = None,
    ) -> Run:
        """Execute once. More than ``step_limit`` steps ends the run as "diverged"."""
        ...
