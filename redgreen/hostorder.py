"""Conflicts whose order hangs on which host thread was faster.

The order of a trace takes the enqueues of different threads on one stream as they came, and a
record by one thread as made before a wait by another. Without a lock, a queue, a start or a join
between the two calls, nothing fixes that. Here each stream is split into one agent per thread that
enqueues on it, and a call only sees what the calling thread knows to have been issued before; a
conflict that is ordered in the trace and a race in what is left stands on the recorded host order.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Hashable
from dataclasses import replace
from typing import NamedTuple

from .edges import path
from .order import implied
from .races import Analysis, Conflict, analyse
from .trace import Agent, Kind, Step, Trace

MOST_GAPS = 64  # that are looked at for one conflict
MOST_CONFLICTS = 256  # for which they are looked at


def unfixed(trace: Trace, found: Analysis) -> list[Conflict]:
    """Conflicts that are no races of ``trace`` and that no order of host threads decides.

    Not those of two lifetimes: who took a block came after who freed it, by the allocator's lock.
    """
    if len({step.issuer for step in trace.steps}) < 2:
        return []
    split, origin = _Split(trace).trace()
    races = {(race.first, race.second, race.memory) for race in found.races}
    left = []
    for race in analyse(split).races:
        first, second = origin[race.first], origin[race.second]
        if race.hazard != "UAF" and (first, second, race.memory) not in races:
            left.append(replace(race, first=first, second=second))
    return left


class Calls(NamedTuple):
    """Pairs of calls that decide conflicts, in the order in which they were made."""

    pairs: list[tuple[int, int]]
    complete: bool  # no conflict is left without all of its pairs


def calls_of(trace: Trace, found: Analysis) -> Calls:
    """The pairs for `unfixed`: the two accesses, or, where one of those is known to be issued
    first, what then orders them and might come too early (a wait, a sync) and what it has to find
    (the record, the last enqueue).
    """
    conflicts = unfixed(trace, found)
    if not conflicts:
        return Calls([], True)
    before, every, gaps = _calls_before(trace), range(len(trace.steps)), _Split(trace).gaps
    pairs: set[tuple[int, int]] = set()
    complete = True
    for rank, conflict in enumerate(conflicts):
        first, second = conflict.first, conflict.second
        if not implied(before, every, first, second, ()):
            pairs.add((first, second))
            continue
        inside = [(a, b) for a, b in gaps if first <= a and b <= second]
        if rank >= MOST_CONFLICTS or len(inside) > MOST_GAPS:
            complete = False  # too many to run them all
            continue
        deciding = [(a, b) for a, b in inside
                    if _leads(trace, first, a) and _leads(trace, b, second)]
        complete = complete and bool(deciding)
        pairs.update(deciding)
    return Calls(sorted(pairs), complete)


def _leads(trace: Trace, first: int, second: int) -> bool:
    return first == second or path(trace, first, second) is not None


def reversible(trace: Trace, pairs: list[tuple[int, int]]) -> list[tuple[int, int]]:
    """Those whose second call can be made before the first, all other pairs staying as they are:
    nothing else puts the first before the second."""
    before = _calls_before(trace)
    for first, second in pairs:
        before[second].append(first)
    every = range(len(trace.steps))
    return [(a, b) for a, b in pairs if not implied(before, every, a, b, [a])]


def _calls_before(trace: Trace) -> list[list[int]]:
    """For each step, the steps whose calls were made right before its own, as far as that is fixed:
    by the same thread, or by another one that this one came after."""
    last: dict[int, int] = {}
    let_go: dict[Hashable, int] = {}
    before: list[list[int]] = []
    for step in trace.steps:
        found = [last[step.issuer]] if step.issuer in last else []
        if trace.agents[step.agent].host:
            if step.kind is Kind.PUBLISH:
                let_go[step.key] = step.index
            elif step.kind is Kind.ACQUIRE and step.key in let_go:
                found.append(let_go[step.key])
        last[step.issuer] = step.index
        before.append(found)
    return before


class _Split:
    """What each thread knows, and the trace that is left of it."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._agents = list(trace.agents)
        self._parts: dict[tuple[int, int], int] = {}  # (stream, thread) -> agent
        # thread -> other thread -> one past the last step of it that is known to come before
        self._known: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._let_go: dict[Hashable, dict[int, int]] = {}
        self._issued: defaultdict[int, dict[int, list[int]]] = defaultdict(dict)
        self._marks: defaultdict[Hashable, list[int]] = defaultdict(list)
        self._after: dict[int, list[int]] = {}  # step -> steps of other threads before it
        self._bound: dict[int, int] = {}  # step -> the publication that it acquires
        # A call, and one of another thread that it came after without knowing.
        self.gaps: list[tuple[int, int]] = []
        for step in trace.steps:
            self._visit(step)

    # -- who knows what

    def _visit(self, step: Step) -> None:
        me = self._known[step.issuer]
        me[step.issuer] = step.index + 1
        host = self._trace.agents[step.agent].host
        if host and step.kind is Kind.PUBLISH:
            self._let_go[step.key] = dict(me)
        elif host and step.kind is Kind.ACQUIRE and step.key in self._let_go:
            for thread, count in self._let_go[step.key].items():
                me[thread] = max(me.get(thread, 0), count)
        elif step.key is not None and _acquires(step):
            known = (i for i in reversed(self._marks[step.key]) if self._knows(step, i))
            self._bound[step.index] = next(known, -1)
            latest = self._marks[step.key][-1:]
            self.gaps += [(mark, step.index) for mark in latest if mark != self._bound[step.index]]
        streams = step.targets if host else (step.agent,)
        if not host or step.kind is Kind.DRAIN or _acquires(step):
            self._after[step.index] = [i for stream in streams for i in self._before(step, stream)]
        if not host:
            self._issued[step.agent].setdefault(step.issuer, []).append(step.index)
            if step.kind is Kind.PUBLISH:
                self._marks[step.key].append(step.index)

    def _knows(self, step: Step, index: int) -> bool:
        return index < self._known[step.issuer].get(self._trace.steps[index].issuer, 0)

    def _before(self, step: Step, stream: int) -> list[int]:
        """The last step on the stream of each other thread, as far as this one knows."""
        last = []
        for thread, issued in self._issued[stream].items():
            count = bisect_left(issued, self._known[step.issuer].get(thread, 0))
            if thread != step.issuer and count:
                last.append(issued[count - 1])
            if thread != step.issuer and count < len(issued):
                self.gaps.append((issued[-1], step.index))
        return last

    # -- what is left

    def trace(self) -> tuple[Trace, list[int]]:
        """The split trace, and which step each of its steps was."""
        awaited = {index for before in self._after.values() for index in before}
        steps: list[Step] = []
        origin: list[int] = []

        def put(s: Step, kind: Kind, key: Hashable, whole: bool) -> None:
            origin.append(s.index)
            accesses = s.accesses if whole else ()
            parts = tuple(self._part(stream, s.issuer) for stream in s.targets) if whole else ()
            steps.append(Step(len(steps), self._part(s.agent, s.issuer), s.issuer, kind, s.op,
                              s.site, s.label, accesses, key, parts, s.edges, s.taken,
                              s.allocation))  # fmt: skip

        for step in self._trace.steps:
            for index in self._after.get(step.index, ()):
                put(step, Kind.ACQUIRE, ("issued", index), False)
            put(step, step.kind, self._key(step), True)
            if step.index in awaited:
                put(step, Kind.PUBLISH, ("issued", step.index), False)
        return replace(self._trace, agents=self._agents, steps=steps), origin

    def _key(self, step: Step) -> Hashable:
        if step.index in self._bound:
            return "mark", self._bound[step.index]
        if step.kind is Kind.PUBLISH and not self._trace.agents[step.agent].host:
            return "mark", step.index
        return step.key

    def _part(self, agent: int, thread: int) -> int:
        if self._trace.agents[agent].host:
            return agent
        part = self._parts.get((agent, thread))
        if part is None:
            part = self._parts[agent, thread] = len(self._agents)
            self._agents.append(Agent(part, self._trace.agents[agent].name, False))
        return part


def _acquires(step: Step) -> bool:
    return step.kind is Kind.ACQUIRE or (step.kind is Kind.CHOICE and step.taken)
