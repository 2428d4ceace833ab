"""The search over schedules of one program (a subject with some faults): one run per class.

What a class is, and how one is reached from another, is in `classes`.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import islice

from .classes import Neighbour, Variant, decided, neighbours, variant
from .describe import place
from .faults import Fault
from .hostorder import calls_of
from .races import all_races
from .run import Outcome, Run, Runner
from .schedule import Order, Schedule
from .trace import Kind, Trace

Stop = Callable[[Outcome], bool]

MAX_VARIANTS = 32  # traces (by the answers to choices, and calls of host threads) that are kept
SPIN = 64  # host reads in a row that are a loop


class Abandoned(Exception):
    """A run gave no outcome of the program at all (time-out, stuck)."""


@dataclass(slots=True)
class Search:
    """Runs and their outcomes. ``budget`` bounds the number of runs."""

    runner: Runner
    faults: frozenset[Fault]
    budget: int
    step_limit: int
    spent: int = 0
    complete: bool = False
    gap: str = ""  # why the search is not complete
    outcomes: dict[Outcome, Run] = field(default_factory=dict)  # the first run that had it
    torn: dict[Outcome, Run] = field(default_factory=dict)  # of runs with a step in two parts
    hits: int = 0
    variants: dict[Variant, Run] = field(default_factory=dict)  # one run for each
    too_many_variants: bool = False
    hosts: bool = False  # explore the orders of host threads too
    classes: int = 0  # that were seen in the latest exploration

    def add(self, run: Run) -> None:
        """Take the result of a run, whoever asked for it."""
        if run.outcome.status in ("timeout", "stuck"):
            raise Abandoned(f"{run.outcome.status} under {run.schedule}: {run.outcome.detail}")
        if run.trace.refusals:  # whatever the program made of it
            raise Abandoned(f"refused under {run.schedule}: {run.trace.refusals[0]}")
        if run.outcome.status == "diverged" and (site := _spins(run.trace)):
            raise Abandoned(
                f"the host spins on bytes at {site}: it goes on when the device has written them, "
                "and no legal schedule keeps the device back for ever"
            )
        self.hits = max(self.hits, *(run.hits.get(f, 0) for f in self.faults), 0)
        if run.schedule.torn:
            self.torn.setdefault(run.outcome, run)
            return
        self.outcomes.setdefault(run.outcome, run)
        self._keep(run)

    def _keep(self, run: Run) -> None:
        key = variant(run.trace, self.hosts)
        if key in self.variants or len(self.variants) < MAX_VARIANTS:
            self.variants.setdefault(key, run)
        else:
            self.too_many_variants = True

    def count_hosts(self, hosts: bool) -> None:
        """From now on the orders of host threads make a difference, or none any more."""
        self.hosts, self.too_many_variants = hosts, False
        known, self.variants = self.variants, {}
        for run in known.values():
            self._keep(run)

    def all_outcomes(self) -> dict[Outcome, Run]:
        """Of whole steps and of torn ones."""
        return {**self.torn, **self.outcomes}

    def run(self, schedule: Schedule) -> Run | None:
        """Run once more; None if the budget is spent."""
        if self.spent >= self.budget:
            self.gap = f"the bound of {self.budget} runs was hit; allow more with --budget"
            return None
        self.spent += 1
        run = self.runner.run(schedule, self.faults, self.step_limit)
        self.add(run)
        return run

    def any(self, schedules: Iterable[Schedule], stop: Stop) -> Run | None:
        """The first of the runs whose outcome is what we look for."""
        for schedule in schedules:
            run = self.run(schedule)
            if run is None:
                return None
            if stop(run.outcome):
                return run
        return None

    def exhaust(self, start: Run, stop: Stop = lambda _: False) -> Run | None:
        """One run of every class, or until an outcome is what we look for."""
        queue, known = deque([start]), {decided(start, self.hosts)}
        tried: set[Schedule] = set()
        self.complete, self.gap = False, ""
        while queue:
            near = self._near(queue.popleft())
            if self._hopeless(near):
                return None
            for schedule, expected, flip, call in near:
                if expected in known or schedule in tried:
                    continue
                tried.add(schedule)
                run = self.run(schedule)
                if run is None:
                    return None
                if stop(run.outcome):
                    return run
                # A call that no thread can make before another one is no class at all. One that is
                # not made in that order, or leaves no step, was not looked at.
                if flip in run.given_up or (flip in run.broken and not (call and _made(flip, run))):
                    self.gap = f"an order could not be kept: {schedule}"
                reached = decided(run, self.hosts)
                if reached not in known:
                    known.add(reached)
                    queue.append(run)
        if self.hosts and not all(calls_of(run.trace, all_races(run.trace)).complete
                                  for run in self.variants.values()):
            self.gap = self.gap or "not all pairs of calls that decide a conflict are known"
        self.complete, self.classes = not self.gap, len(known)
        return None

    def _near(self, run: Run) -> list[Neighbour]:
        found = all_races(run.trace)
        if found.truncated:
            self.gap = "too many racing pairs"
        return neighbours(run, found, self.hosts)

    def _hopeless(self, near: list[Neighbour]) -> bool:
        """Every neighbour is a class of its own. Where they alone are too many, and a difference is
        known already or most of them are orders of calls, the runs would buy nothing."""
        left = self.budget - self.spent
        if len(near) <= left or (len(self.outcomes) == 1 and not self.hosts):
            return False
        self.gap = (f"{len(near)} or more classes of schedules are left and {left} of "
                    f"{self.budget} runs; allow more with --budget")
        return True


def _made(flip: Order | None, run: Run) -> bool:
    return flip is not None and any(step.label == flip.first for step in run.trace.steps)


def _spins(trace: Trace) -> str:
    """Where the run's last steps were a host's reads and nothing else, in a small loop."""
    last = (s for s in reversed(trace.steps) if s.kind is not Kind.FREE and s.allocation < 0)
    tail = list(islice(last, SPIN))  # without what was freed on the way out
    sites = {step.site for step in tail}
    reads = all(step.kind is Kind.ACCESS and trace.agents[step.agent].host for step in tail)
    return place(trace.sites[tail[0].site]) if reads and len(sites) <= 4 else ""
