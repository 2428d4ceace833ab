"""The equivalence class of an execution, and the classes next to it.

Two executions are equivalent when they order every conflicting pair alike. What the order decides
is always alike, so a *class* is the way in which an execution decided its races, and its choices.
From one run of a class, its neighbours are reached by reversing one race that no other order
implies (an *immediate* one) and keeping the others, or by answering one choice the other way; every
class is connected with every other by such steps, since any two linear orders are connected by
swaps of adjacent steps. The calls of host threads that nothing orders (`hostorder`) are pairs of
their own, decided by which call is made first. Each run's own trace says what can be reversed
next, so programs whose control flow depends on the order are followed into their branches.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from typing import NamedTuple

from .hostorder import calls_of, reversible
from .lifetimes import pool_of, reuse_matters
from .order import implied, predecessors, questions
from .races import Analysis, Conflict, all_races
from .run import Run
from .schedule import Order, Schedule
from .trace import Kind, Step, Trace

Choices = tuple[tuple[str, bool], ...]
Pair = tuple[int, int]  # step indices, as executed
Decided = frozenset[tuple[str, str]]  # pairs of labels, the earlier one first
Variant = tuple[Choices, Decided]  # what the trace itself hangs on: answers, calls of host threads
Class = tuple[Decided, Variant]

PATIENCE = 64  # polls in a row that are answered no, to get out of a loop that gives up


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


class Neighbour(NamedTuple):
    """A way to reach another class."""

    schedule: Schedule
    reached: Class | None = None  # which class, where that can be foretold
    flip: Order | None = None  # the order that makes the difference
    call: bool = False  # it is between the calls of two host threads


def variant(trace: Trace, hosts: bool, found: Analysis | None = None) -> Variant:
    """``hosts``: orders of calls of host threads make a difference as well. ``found``: its races,
    where they are known."""
    calls = calls_of(trace, found or all_races(trace)).pairs if hosts else ()
    return settled(trace), frozenset(map(_labels(trace), calls))


def decided(run: Run, hosts: bool) -> Class:
    """The class of a run: how it decided its races, its choices and (``hosts``) its calls."""
    found = all_races(run.trace)
    pairs = _executed(run.trace, found.races)
    return frozenset(map(_labels(run.trace), pairs)), variant(run.trace, hosts, found)


def _labels(trace: Trace) -> Callable[[Pair], tuple[str, str]]:
    steps = trace.steps
    return lambda pair: (steps[pair[0]].label, steps[pair[1]].label)


def neighbours(run: Run, found: Analysis, hosts: bool) -> list[Neighbour]:
    """Schedules of the classes next to that of a run; ``found`` are its races."""
    trace = run.trace
    calls = calls_of(trace, found).pairs if hosts else []
    if not found.races and not calls and not any(s.kind is Kind.CHOICE for s in trace.steps):
        return []
    graph = _Graph(trace, _executed(trace, found.races))
    # What the run was told as well: a wait that came too early is a race now, and no pair any more.
    kept = dict.fromkeys((*(order(trace, pair) for pair in calls), *run.schedule.calls))
    result = list(_reversed_races(trace, graph, variant(trace, hosts, found)))
    pools = reuse_matters(trace)
    for step in trace.steps:
        if step.kind is Kind.CHOICE and (
            step.allocation < 0 or pool_of(trace, step.allocation) in pools
        ):
            result += _other_answer(trace, graph, step)
    result = [near._replace(schedule=replace(near.schedule, calls=tuple(kept))) for near in result]
    return result + list(_reversed_calls(trace, graph, calls, list(kept)))


def _reversed_races(trace: Trace, graph: _Graph, stays: Variant) -> Iterator[Neighbour]:
    answers = choices(trace)
    labels = {pair: order(trace, pair) for pair in graph.pairs}
    late = tuple(order(trace, pair) for pair in graph.refusals)
    everything = frozenset((o.first, o.second) for o in labels.values())
    for pair in graph.pairs:
        if graph.immediate(pair):
            flip = order(trace, (pair[1], pair[0]))
            kept = tuple(labels[other] for other in graph.pairs if other != pair) + late
            was = labels[pair]
            reached = (everything - {(was.first, was.second)}) | {(flip.first, flip.second)}
            yield Neighbour(Schedule(orders=(flip, *kept), choices=answers), (reached, stays), flip)


def _reversed_calls(
    trace: Trace, graph: _Graph, calls: list[Pair], kept: list[Order]
) -> Iterator[Neighbour]:
    """What races or is asked for then is another matter: the decisions are kept as far as they
    come up again."""
    orders = tuple(order(trace, pair) for pair in (*graph.pairs, *graph.refusals))
    for pair in reversible(trace, calls):
        was, flip = order(trace, pair), order(trace, (pair[1], pair[0]))
        others = tuple(other for other in kept if other != was)
        schedule = Schedule(orders=orders, choices=choices(trace), calls=(flip, *others))
        yield Neighbour(schedule, None, flip, call=True)


def _other_answer(
    trace: Trace, graph: _Graph, choice: Step
) -> Iterator[Neighbour]:
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
        orders = tuple(order(trace, pair) for pair in pairs)
        yield Neighbour(Schedule(orders=orders, choices=(*answers, (choice.label, True))))
        return
    for step in open_:
        late = graph.descendants(step)
        kept = [p for p in pairs if not late.intersection(p)]
        orders = (order(trace, (choice.index, step)), *(order(trace, pair) for pair in kept))
        schedule = Schedule(orders=orders, choices=(*answers, (choice.label, False)))
        yield Neighbour(schedule, flip=orders[0])
        name, _, ordinal = choice.label.rpartition("#")
        polls = [f"{name}#{int(ordinal) + i}" for i in range(PATIENCE)]
        never = Order(polls[-1], trace.steps[step].label)
        no = tuple((poll, False) for poll in polls)
        yield Neighbour(Schedule(orders=(never, *orders[1:]), choices=(*answers, *no)))


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


def order(trace: Trace, pair: Pair) -> Order:
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
        return implied(self._before, self.position, first, second, without)

    def descendants(self, first: int) -> set[int]:
        """``first`` and all that came after it because of it."""
        found = {first}
        for step in sorted(range(len(self._before)), key=self.position.__getitem__):
            if not found.isdisjoint(self._before[step]):
                found.add(step)
        return found
