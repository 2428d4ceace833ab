"""The search over schedules of one program (a subject with some faults).

Two executions are equivalent when they order every conflicting pair alike. What the order decides
is always alike, so a *class* is the way in which an execution decided its races, and its choices.
From one run of a class, its neighbours are reached by reversing one race that no other order
implies (an *immediate* one) and keeping the others, or by answering one choice the other way; every
class is connected with every other by such steps, since any two linear orders are connected by
swaps of adjacent steps. Each run's own trace says what can be reversed next, so programs whose
control flow depends on the order are followed into their branches.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice

from .describe import place
from .faults import Fault
from .lifetimes import reuse_matters
from .order import predecessors, questions
from .races import Conflict, all_races
from .run import Outcome, Run, Runner
from .schedule import Order, Policy, Schedule
from .trace import Kind, Step, Trace

Stop = Callable[[Outcome], bool]
Choices = tuple[tuple[str, bool], ...]
Pair = tuple[int, int]  # step indices, as executed
Class = tuple[frozenset[tuple[str, str]], Choices]

RANDOM_SEEDS = (1, 2, 3)
MAX_VARIANTS = 32  # traces (by the answers to choices) that are kept
PATIENCE = 64  # polls in a row that are answered no, to get out of a loop that gives up
SPIN = 64  # host reads in a row that are a loop
MAX_STREAMS = 8  # first and last are demonstrated for that many


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
    variants: dict[Choices, Run] = field(default_factory=dict)  # one run for each list of answers
    too_many_variants: bool = False

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
        answers = settled(run.trace)
        if answers in self.variants or len(self.variants) < MAX_VARIANTS:
            self.variants.setdefault(answers, run)
        else:
            self.too_many_variants = True

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
        queue, known = deque([start]), {decided(start)}
        tried: set[tuple[tuple[Order, ...], Choices]] = set()
        self.complete, self.gap = False, ""
        while queue:
            near = neighbours(queue.popleft(), self)
            # Every neighbour is a class of its own. Where they alone are too many and a difference
            # is known already, the runs would buy nothing.
            if len(self.outcomes) > 1 and len(near) > self.budget - self.spent:
                left = self.budget - self.spent
                self.gap = (f"{len(near)} or more classes of schedules are left and {left} of "
                            f"{self.budget} runs; allow more with --budget")
                return None
            for schedule, expected, keep in near:
                if expected in known or (schedule.orders, schedule.choices) in tried:
                    continue
                tried.add((schedule.orders, schedule.choices))
                run = self.run(schedule)
                if run is None:
                    return None
                if stop(run.outcome):
                    return run
                if keep and schedule.orders[0] in run.broken:
                    self.gap = f"an order could not be kept: {schedule}"
                reached = decided(run)
                if reached not in known:
                    known.add(reached)
                    queue.append(run)
        self.complete = not self.gap
        return None


def _spins(trace: Trace) -> str:
    """Where the run's last steps were a host's reads and nothing else, in a small loop."""
    last = (s for s in reversed(trace.steps) if s.kind is not Kind.FREE and s.allocation < 0)
    tail = list(islice(last, SPIN))  # without what was freed on the way out
    sites = {step.site for step in tail}
    reads = all(step.kind is Kind.ACCESS and trace.agents[step.agent].host for step in tail)
    return place(trace.sites[tail[0].site]) if reads and len(sites) <= 4 else ""


def choices(trace: Trace) -> Choices:
    return tuple((s.label, s.taken) for s in trace.steps if s.kind is Kind.CHOICE)


def settled(trace: Trace) -> Choices:
    """The answers by which runs differ: of a polling loop, only whether it ended with a yes.

    A poll without success that is repeated at once changed nothing, so looking once more is not
    another class. A loop that counts its polls shows that in the outcome of `_other_answer`'s runs.
    """
    asked: Counter[str] = Counter()
    found: list[tuple[str, bool]] = []
    for step in trace.steps:
        if step.kind is Kind.CHOICE and not _again(trace, step):
            name = step.label.rpartition("#")[0]
            asked[name] += 1
            found.append((f"{name}#{asked[name]}", step.taken))
    return tuple(found)


def _again(trace: Trace, step: Step) -> bool:
    """Did this poll fail, and was the next step of all to ask the same again?"""
    if step.taken or step.index + 1 == len(trace.steps):
        return False
    after = trace.steps[step.index + 1]
    here = (step.kind, step.site, step.agent, step.key, step.targets)
    return here == (after.kind, after.site, after.agent, after.key, after.targets)


def holds(trace: Trace, conflicts: Iterable[Conflict]) -> Iterator[Schedule]:
    """Schedules that reverse a conflict: first eagerly, then with everything else late."""
    answers = choices(trace)
    late = tuple(_order(trace, (choice, step)) for choice, asked, _ in questions(trace)
                 if not trace.steps[choice].taken for step in asked)
    for conflict in conflicts:
        flip = _order(trace, (conflict.second, conflict.first))
        yield Schedule("serial", orders=(flip, *late), choices=answers)
        yield Schedule("lazy", orders=(flip, *late), choices=answers)
        if answers:
            yield Schedule("lazy", orders=(flip,))


def demonstrations(trace: Trace) -> Iterator[Schedule]:
    """Schedules as different from serial as they get."""
    yield Schedule("lazy")
    streams = [agent.name for agent in trace.agents if not agent.host][:MAX_STREAMS]
    if len(streams) > 1:
        for stream in streams:
            policies: tuple[Policy, ...] = ("first", "last")
            for policy in policies:
                yield Schedule(policy, stream=stream)
    for seed in RANDOM_SEEDS:
        yield Schedule("random", seed=seed)


def spread(trace: Trace, conflicts: Sequence[Conflict], limit: int = 3) -> list[Conflict]:
    """A few of each kind of conflict (pair of sites): the first, the last and some in between."""
    groups: dict[tuple[int, int, str], list[Conflict]] = {}
    for conflict in conflicts:
        sites = trace.steps[conflict.first].site, trace.steps[conflict.second].site
        groups.setdefault((*sites, conflict.hazard), []).append(conflict)
    chosen = []
    for rank in range(limit):  # one of each kind before the second of any
        for group in groups.values():
            if rank < len(group):
                chosen.append(group[rank * (len(group) - 1) // max(min(limit, len(group)) - 1, 1)])
    return chosen


def decided(run: Run) -> Class:
    """The class of a run: how it decided its races and choices."""
    found = all_races(run.trace)
    steps = run.trace.steps
    pairs = _executed(run.trace, found.races)
    return frozenset((steps[a].label, steps[b].label) for a, b in pairs), settled(run.trace)


def neighbours(run: Run, search: Search) -> list[tuple[Schedule, Class | None, bool]]:
    """Schedules of the classes next to a run's, with the class where it can be foretold, and
    whether the first order is what makes the difference."""
    trace = run.trace
    found = all_races(trace)
    if found.truncated:
        search.gap = "too many racing pairs"
    if not found.races and not any(step.kind is Kind.CHOICE for step in trace.steps):
        return []
    graph = _Graph(trace, _executed(trace, found.races))
    answers = choices(trace)
    labels = {pair: _order(trace, pair) for pair in graph.pairs}
    late = tuple(_order(trace, pair) for pair in graph.refusals)
    everything = frozenset((o.first, o.second) for o in labels.values())
    result: list[tuple[Schedule, Class | None, bool]] = []
    for pair in graph.pairs:
        if graph.immediate(pair):
            flip = _order(trace, (pair[1], pair[0]))
            kept = tuple(labels[other] for other in graph.pairs if other != pair) + late
            was = labels[pair]
            expected = (everything - {(was.first, was.second)}) | {(flip.first, flip.second)}
            reached = (expected, settled(trace))
            result.append((Schedule(orders=(flip, *kept), choices=answers), reached, True))
    reuse = reuse_matters(trace)
    for step in trace.steps:
        if step.kind is Kind.CHOICE and (step.allocation < 0 or reuse):
            result += [(schedule, None, keep) for schedule, keep in
                       _other_answer(trace, graph, step)]
    return result


def _other_answer(
    trace: Trace, graph: _Graph, choice: Step
) -> Iterator[tuple[Schedule, bool]]:
    asked = graph.asked[choice.index]
    open_ = [step for step in asked if not graph.implied(step, choice.index, asked)]
    if not open_:
        return  # the order decides the answer
    answers = tuple((s.label, s.taken) for s in trace.steps[: choice.index]
                    if s.kind is Kind.CHOICE)
    here = graph.position[choice.index]
    pairs = [p for p in graph.pairs if max(graph.position[p[0]], graph.position[p[1]]) < here]
    pairs += [p for p in graph.refusals if p[0] < choice.index]
    if not choice.taken:
        orders = tuple(_order(trace, pair) for pair in pairs)
        yield Schedule(orders=orders, choices=(*answers, (choice.label, True))), False
        return
    for step in open_:
        late = graph.descendants(step)
        kept = [p for p in pairs if not late.intersection(p)]
        orders = (_order(trace, (choice.index, step)), *(_order(trace, pair) for pair in kept))
        yield Schedule(orders=orders, choices=(*answers, (choice.label, False))), True
        name, _, ordinal = choice.label.rpartition("#")
        polls = [f"{name}#{int(ordinal) + i}" for i in range(PATIENCE)]
        never = Order(polls[-1], trace.steps[step].label)
        no = tuple((poll, False) for poll in polls)
        yield Schedule(orders=(never, *orders[1:]), choices=(*answers, *no)), False


def _executed(trace: Trace, races: Iterable[Conflict]) -> list[Pair]:
    position = _positions(trace)
    return sorted({(r.first, r.second) if position[r.first] < position[r.second]
                   else (r.second, r.first) for r in races})


def _positions(trace: Trace) -> list[int]:
    """When each step executed; what never did counts as last, in issue order."""
    position = [len(trace.steps) + i for i in range(len(trace.steps))]
    for spot, index in enumerate(trace.execution):
        position[index] = spot
    return position


def _order(trace: Trace, pair: Pair) -> Order:
    return Order(trace.steps[pair[0]].label, trace.steps[pair[1]].label)


class _Graph:
    """What came before what in one execution: the order, and the races as they were decided."""

    def __init__(self, trace: Trace, pairs: list[Pair]) -> None:
        self.pairs = pairs
        self.position = _positions(trace)
        self._before = [set(found) for found in predecessors(trace)]
        # "Not yet" means that what was asked about came later; it must again in the next run.
        self.asked = {choice: asked for choice, asked, _ in questions(trace)}
        self.refusals = [
            (choice, step) for choice, asked in self.asked.items()
            if not trace.steps[choice].taken
            for step in asked if self.position[step] > self.position[choice]
        ]
        for first, second in (*pairs, *self.refusals):
            self._before[second].add(first)

    def immediate(self, pair: Pair) -> bool:
        """Does nothing but the race itself put the first before the second?"""
        return not self.implied(*pair, [pair[0]])

    def implied(self, first: int, second: int, without: Iterable[int]) -> bool:
        """Does first come before second by another way than directly from ``without``?"""
        stack = [step for step in self._before[second] if step not in set(without)]
        seen: set[int] = set()
        while stack:
            step = stack.pop()
            if step == first:
                return True
            if step not in seen and self.position[step] > self.position[first]:
                seen.add(step)
                stack.extend(self._before[step])
        return False

    def descendants(self, first: int) -> set[int]:
        """``first`` and all that came after it because of it."""
        found = {first}
        for step in sorted(range(len(self._before)), key=self.position.__getitem__):
            if not found.isdisjoint(self._before[step]):
                found.add(step)
        return found
