"""The wait that a refuted program lacks: found on its trace, proved by running with it.

A race of two steps is ordered by one wait right before the later one, for the agent of the earlier
one. Whether that is enough is decided on the trace first, then by a proof of its own with the wait
inserted at every instance of the line. If no single wait is enough, up to three are taken, each the
one that orders most of what is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from .directed import spread
from .explore import Abandoned, Search
from .faults import Fault
from .green import judge_program
from .judge import Base
from .races import Conflict, all_races, analyse
from .run import Run, Runner
from .schedule import SERIAL, Schedule
from .trace import EdgeSite, Kind, Step, Trace
from .verdict import Diagnostic

MOST = 3  # waits
LOOKED_AT = 12  # candidates, of the first races of each pair of lines


@dataclass(frozen=True, slots=True)
class _Proof:
    waits: tuple[Fault, ...]
    schedules: int


def missing_waits(base: Base) -> Iterator[Diagnostic]:
    """What to add to the program, if something simple makes it right on every schedule."""
    found = _proved(base, _enough(base))
    if found is None:
        return
    others = len(found.waits) - 1
    for wait in found.waits:
        site = wait.edge.site
        alone = "" if not others else (" and the other wait" if others == 1 else
                                       f" and the other {others} waits")
        yield Diagnostic(
            "missing-edge", site.file, site.line,
            f"{_who(wait.waiter)} does not wait for {wait.awaited} before this line; with that wait"
            f"{alone} the program is proved, in {found.schedules} schedules")


def _who(agent: str) -> str:
    return "the host" if agent == "host" else agent


def _enough(base: Base) -> tuple[Fault, ...]:
    """Waits that leave no race in any variant, or nothing."""
    chosen: tuple[Fault, ...] = ()
    traces = [run.trace for _, run in base.variants()]
    while len(chosen) < MOST:
        waiting = [_with(trace, chosen) for trace in traces]
        left = {wait: sum(_races(_with(trace, (wait,))) for trace in waiting)
                for wait in _candidates(waiting)}
        if not left:
            return ()
        best = min(left, key=left.__getitem__)
        if left[best] >= sum(map(_races, waiting)):
            return ()
        chosen = (*chosen, best)
        if not left[best]:
            return chosen
    return ()


def _races(trace: Trace) -> int:
    return len(analyse(trace).races)


def _candidates(traces: list[Trace]) -> list[Fault]:
    found: dict[Fault, None] = {}
    for trace in traces:
        for conflict in spread(trace, all_races(trace).races, 1):
            wait = _wait(trace, conflict)
            if wait is not None:
                found[wait] = None
    return list(found)[:LOOKED_AT]


def _wait(trace: Trace, conflict: Conflict) -> Fault | None:
    first, second = trace.steps[conflict.first], trace.steps[conflict.second]
    awaited, waiter = trace.agents[first.agent], trace.agents[second.agent]
    if awaited.host:
        return None  # two host threads: what is missing is not of the device
    site = trace.sites[second.site]
    return Fault("wait", EdgeSite("wait", site), waiter.name, awaited.name)


def _with(trace: Trace, waits: tuple[Fault, ...]) -> Trace:
    """The trace of the program with these waits in it."""
    for wait in waits:
        trace = _with_one(trace, wait)
    return trace


def _with_one(trace: Trace, wait: Fault) -> Trace:
    names = [agent.name for agent in trace.agents]
    if wait.awaited not in names or wait.waiter not in names:
        return trace
    waiter, awaited = names.index(wait.waiter), names.index(wait.awaited)
    steps: list[Step] = []
    place_of: list[int] = []
    for step in trace.steps:
        if (step.agent == waiter and step.kind is Kind.ACCESS
                and trace.sites[step.site] == wait.edge.site):  # fmt: skip
            for agent, kind in ((awaited, Kind.PUBLISH), (waiter, Kind.ACQUIRE)):
                issuer = step.issuer
                steps.append(Step(len(steps), agent, issuer, kind, "inserted", step.site, "",
                                  key=("inserted", wait, step.index)))  # fmt: skip
        place_of.append(len(steps))
        steps.append(replace(step, index=len(steps)))
    return replace(trace, steps=steps, execution=[place_of[i] for i in trace.execution])


def _proved(base: Base, waits: tuple[Fault, ...]) -> _Proof | None:
    """Step 2 to 4 of a proof, of the program with the waits."""
    if not waits:
        return None
    runner = _Repaired(base.runner, frozenset(waits))
    start = runner.run(SERIAL, step_limit=base.step_limit)
    hit = all(start.hits.get(wait, 0) for wait in waits)
    if not hit or start.outcome != base.serial.outcome:
        return None
    search = Search(runner, frozenset(), base.budget, base.step_limit)
    try:
        judged = judge_program(Base(runner, start, search, base.budget, base.step_limit), _no_token)
    except Abandoned:
        return None
    return _Proof(waits, search.spent) if judged.green.verdict == "proved" else None


@dataclass(frozen=True, slots=True)
class _Repaired:
    """A `Runner` of the program with the waits."""

    runner: Runner
    waits: frozenset[Fault]

    def run(
        self, schedule: Schedule, faults: frozenset[Fault] = frozenset(),
        step_limit: int | None = None,
    ) -> Run:  # fmt: skip
        return self.runner.run(schedule, faults | self.waits, step_limit)


def _no_token(schedule: Schedule, faults: frozenset[Fault]) -> str:
    return ""
