"""Step 1: the recorded run, and what keeps it from being a base for proofs."""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import dataclass

from .describe import place
from .run import Run, Runner
from .schedule import SERIAL
from .trace import Step, Trace


class SubjectRaised(Exception):
    """The subject fails as written, under the serial schedule. The message is its traceback."""


@dataclass(frozen=True, slots=True)
class Recording:
    """The run that everything is derived from; ``objection`` says why nothing may be."""

    run: Run
    objection: str = ""
    outcomes: int = 1  # of the two serial runs


def record(runner: Runner) -> Recording:
    """One warm-up that is thrown away, then twice the same."""
    runner.run(SERIAL)
    first, second = runner.run(SERIAL), runner.run(SERIAL)
    for run in (first, second):
        if run.outcome.status in ("timeout", "stuck"):
            return Recording(run, f"{run.outcome.status}: {run.outcome.detail}")
    refusals = first.trace.refusals or second.trace.refusals
    if refusals:
        return Recording(first, f"refused: {refusals[0]}")
    difference = _difference(first, second)
    if difference:
        outcomes = len({first.outcome, second.outcome})
        return Recording(first, difference + _clock(first.trace), outcomes)
    if first.outcome.status != "returned":
        raise SubjectRaised(first.outcome.detail or first.outcome.status)
    return Recording(first)


def _difference(first: Run, second: Run) -> str:
    """The first step in which two runs of one schedule differ, or the first output byte."""
    mine, yours = _Names(first.trace), _Names(second.trace)
    pairs = zip(first.trace.steps, second.trace.steps, strict=False)
    for a, b in pairs:
        if mine.step(a) != yours.step(b):
            where = place(first.trace.sites[a.site])
            return f"two serial runs differ first at {where} {a.op} ({a.label} / {b.label})"
    if len(first.trace.steps) != len(second.trace.steps):
        longer = max(first.trace, second.trace, key=lambda trace: len(trace.steps))
        step = longer.steps[min(len(first.trace.steps), len(second.trace.steps))]
        where = place(longer.sites[step.site])
        return f"two serial runs differ first at {where} {step.op} ({step.label}), only in one"
    if first.outcome != second.outcome:
        return f"two serial runs with equal traces gave different outputs: {byte(first, second)}"
    return ""


def _clock(trace: Trace) -> str:
    """What may be to blame for a difference."""
    for note in trace.notes:
        if note.kind == "clock":
            return f"; {note.message} at {place(trace.sites[note.site])}"
    return ""


def byte(first: Run, second: Run) -> str:
    """Where two outcomes differ first."""
    mine, yours = first.outcome, second.outcome
    if mine.status != yours.status:
        return f"{mine.status} / {yours.status}"
    for a, b in zip(mine.leaves, yours.leaves, strict=False):
        if a != b:
            offset = next((i for i, (x, y) in enumerate(zip(a.data, b.data, strict=False))
                           if x != y), min(len(a.data), len(b.data)))
            return f"output{a.path} byte {offset}"
    return "the structure of the output"


class _Names:
    """A trace without identities: keys and memories are numbered as they first appear."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._numbers: dict[tuple[str, Hashable], int] = {}

    def _number(self, table: str, value: Hashable) -> int:
        return self._numbers.setdefault((table, value), len(self._numbers))

    def step(self, step: Step) -> tuple[object, ...]:
        agents = self._trace.agents
        accesses = tuple(
            (self._number("memory", a.memory), self._number("lifetime", a.lifetime),
             a.extent, a.reads, a.writes)
            for a in step.accesses
        )
        return (step.label, step.kind, step.op, agents[step.agent].name, agents[step.issuer].name,
                self._trace.sites[step.site], accesses, self._number("key", step.key),
                tuple(agents[t].name for t in step.targets), step.taken,
                tuple(self._trace.edges[e] for e in step.edges))
