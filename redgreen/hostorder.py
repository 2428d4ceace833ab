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
from collections.abc import Hashable, Iterator, Set
from dataclasses import replace
from typing import NamedTuple

from .edges import leads
from .lifetimes import latent_frees, pool_of
from .order import NOTHING, implied, vanishes
from .races import Analysis, Conflict, analyse
from .trace import Agent, Allocation, Kind, Step, Trace

MOST_GAPS = 64  # that are looked at for one conflict
MOST_CONFLICTS = 256  # for which they are looked at


def unfixed(trace: Trace, found: Analysis, gone: Set[int] = NOTHING) -> list[Conflict]:
    """Conflicts that are no races of ``trace`` without the edges, which are in ``found``, and that
    no order of host threads decides.

    Memory is handed out under a lock: who took a block came after who freed it, or would have got
    another one. That orders the uses of the block, and nothing else.
    """
    if len({step.issuer for step in trace.steps}) < 2:
        return []
    races = {(race.first, race.second, race.memory) for race in found.races}
    left = _Split(trace, gone).races()
    if any(race.hazard == "UAF" for race in left):
        left = [race for race in left if race.hazard != "UAF"]
        left += [race for race in _Split(trace, gone, True).races() if race.hazard == "UAF"]
    return [race for race in left if (race.first, race.second, race.memory) not in races]


class Calls(NamedTuple):
    """Pairs of calls that decide conflicts, in the order in which they were made."""

    pairs: list[tuple[int, int]]
    complete: bool  # no conflict is left without all of its pairs


def calls_of(trace: Trace, found: Analysis) -> Calls:
    """The pairs for `unfixed`: the two accesses, or, where one of those is known to be issued
    first, what then orders them and might come too early (a wait, a sync) and what it has to find
    (the record, the last enqueue), or too late to find a record that another one has replaced.

    The launch of a graph is one call, which its first step stands for.
    """
    conflicts = unfixed(trace, found)
    if not conflicts:
        return Calls([], True)
    before, every, split = _calls_before(trace), range(len(trace.steps)), _Split(trace)
    pairs: set[tuple[int, int]] = set()
    complete = True
    for rank, conflict in enumerate(conflicts):
        first, second = conflict.first, conflict.second
        if conflict.hazard == "UAF":
            complete = False  # no schedule can keep back the allocation that takes the block
            continue
        if not implied(before, every, first, second, ()):
            pairs.add((first, second))
            continue
        inside = [gap for gap in split.gaps if first <= gap.source and gap.through <= second]
        if rank >= MOST_CONFLICTS or len(inside) > MOST_GAPS:
            complete = False  # too many to run them all
            continue
        deciding = [gap.pair for gap in inside
                    if leads(trace, first, gap.source) and leads(trace, gap.through, second)]
        complete = complete and bool(deciding)
        pairs.update(deciding)
    heads = _heads(trace)
    return Calls(sorted({(heads[a], heads[b]) for a, b in pairs}), complete)


def _heads(trace: Trace) -> list[int]:
    """For each step the first one of its launch, or itself."""
    launches: dict[int, int] = {}
    return [launches.setdefault(step.launch, step.index) if step.launch else step.index
            for step in trace.steps]


def lucky_place(trace: Trace) -> bool:
    """Is there an allocation of one thread and a free of another such that, had the free come
    first, as it may, the allocation could have taken the block while it was still used? No
    conflict shows that, and no schedule can keep back an allocation."""
    if len({step.issuer for step in trace.steps}) < 2:
        return False
    first: dict[int, int] = {}
    for step in trace.steps:
        for access in step.accesses:
            first.setdefault(access.lifetime, step.index)
    before, every = _calls_before(trace), range(len(trace.steps))
    for latent in latent_frees(trace):
        free = trace.steps[latent.free]
        old = trace.allocations[free.allocation]
        for lifetime, taken in first.items():
            new = trace.allocations[lifetime]
            if (taken < free.index and trace.steps[taken].issuer != free.issuer
                    and new.size <= old.size and lifetime != old.id
                    and pool_of(trace, lifetime) == pool_of(trace, old.id)
                    and not implied(before, every, taken, free.index, ())):
                return True
    return False


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


class _Gap(NamedTuple):
    """What the order of two calls decides: whether ``through`` comes after ``source``."""

    pair: tuple[int, int]  # calls as they were made; the other order is possible
    source: int
    through: int


class _Split:
    """What each thread knows, and the trace that is left of it, without the edges that are gone."""

    def __init__(self, trace: Trace, gone: Set[int] = NOTHING, reuse: bool = False) -> None:
        """``reuse``: who takes a block knows what its last owner knew."""
        self._trace, self._reuse = trace, reuse
        self._steps = [step for step in trace.steps if not vanishes(step, gone)]
        self._agents = list(trace.agents)
        self._parts: dict[tuple[int, int], int] = {}  # (stream, thread) -> agent
        # thread -> other thread -> one past the last step of it that is known to come before
        self._known: defaultdict[int, dict[int, int]] = defaultdict(dict)
        self._let_go: dict[Hashable, dict[int, int]] = {}
        self._issued: defaultdict[int, dict[int, list[int]]] = defaultdict(dict)
        self._marks: defaultdict[Hashable, list[int]] = defaultdict(list)
        self._waits: defaultdict[Hashable, list[int]] = defaultdict(list)
        self._after: dict[int, list[int]] = {}  # step -> steps of other threads before it
        self._bound: dict[int, int] = {}  # step -> the publication that it acquires
        self._lost: set[int] = set()  # waits whose record another one may have replaced
        self._lives = _Lives(trace)
        self._takes: dict[int, list[int]] = {}  # step -> lifetimes that had ended before
        self.gaps: list[_Gap] = []
        for step in self._steps:
            self._visit(step)

    # -- who knows what

    def _visit(self, step: Step) -> None:
        me = self._known[step.issuer]
        me[step.issuer] = step.index + 1
        host = self._trace.agents[step.agent].host
        if self._reuse:
            self._take(step)
        if host and step.kind is Kind.FREE:
            self._lives.free(step.allocation)
            self._let_go["freed", step.allocation] = dict(me)
        elif host and step.kind is Kind.PUBLISH:
            self._let_go[step.key] = dict(me)
        elif host and step.kind is Kind.ACQUIRE and step.key in self._let_go:
            self._learn(me, step.key)
        elif step.key is not None and _acquires(step):
            self._bind(step)
        streams = step.targets if host else (step.agent,)
        if not host or step.kind is Kind.DRAIN or _acquires(step):
            self._after[step.index] = [i for stream in streams for i in self._before(step, stream)]
        if not host:
            self._issued[step.agent].setdefault(step.issuer, []).append(step.index)
            if step.kind is Kind.PUBLISH:
                self._mark(step)

    def _learn(self, me: dict[int, int], key: Hashable) -> None:
        for thread, count in self._let_go[key].items():
            me[thread] = max(me.get(thread, 0), count)

    def _take(self, step: Step) -> None:
        ended = list(self._lives.before(step))
        for lifetime in ended:
            self._learn(self._known[step.issuer], ("freed", lifetime))
        if ended:
            self._takes[step.index] = ended

    def _bind(self, step: Step) -> None:
        """A wait finds the last record that its thread knows of."""
        known = (i for i in reversed(self._marks[step.key]) if self._knows(step, i))
        bound = self._bound[step.index] = next(known, -1)
        for mark in self._marks[step.key][-1:]:
            if mark != bound:
                self.gaps.append(_Gap((mark, step.index), mark, step.index))
        self._waits[step.key].append(step.index)

    def _mark(self, step: Step) -> None:
        """A record on another stream that might come before an earlier wait takes its place."""
        for wait in self._waits[step.key]:
            bound = self._bound[wait]
            if bound >= 0 and not self._knows(step, wait) and (
                self._trace.steps[bound].agent != step.agent
            ):
                self._lost.add(wait)
                self.gaps.append(_Gap((wait, step.index), bound, wait))
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
                self.gaps.append(_Gap((issued[-1], step.index), issued[-1], step.index))
        return last

    # -- what is left

    def races(self) -> list[Conflict]:
        """Of the split trace, by the steps of the trace."""
        split, origin = self._split()
        return [replace(race, first=origin[race.first], second=origin[race.second])
                for race in analyse(split).races]

    def _split(self) -> tuple[Trace, list[int]]:
        """The split trace, and which step each of its steps was."""
        awaited = {index for before in self._after.values() for index in before}
        steps: list[Step] = []
        origin: list[int] = []

        def put(s: Step, kind: Kind, key: Hashable, agent: int, whole: bool = False) -> None:
            origin.append(s.index)
            accesses = s.accesses if whole else ()
            parts = tuple(self._part(stream, s.issuer) for stream in s.targets) if whole else ()
            steps.append(Step(len(steps), self._part(agent, s.issuer), s.issuer, kind, s.op,
                              s.site, s.label, accesses, key, parts, (), s.taken, s.allocation))

        for step in self._steps:
            for lifetime in self._takes.get(step.index, ()):
                put(step, Kind.ACQUIRE, ("freed", lifetime), step.issuer)
            for index in self._after.get(step.index, ()):
                put(step, Kind.ACQUIRE, ("issued", index), step.agent)
            put(step, step.kind, self._key(step), step.agent, True)
            if step.index in awaited:
                put(step, Kind.PUBLISH, ("issued", step.index), step.agent)
            if step.kind is Kind.FREE:
                put(step, Kind.PUBLISH, ("freed", step.allocation), step.agent)
        return replace(self._trace, agents=self._agents, steps=steps), origin

    def _key(self, step: Step) -> Hashable:
        if step.index in self._bound:
            return "mark", -1 if step.index in self._lost else self._bound[step.index]
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


class _Lives:
    """Which lifetimes of a range had ended when the next one began."""

    def __init__(self, trace: Trace) -> None:
        self._trace = trace
        self._begun: set[int] = set()
        self._freed: defaultdict[int, list[Allocation]] = defaultdict(list)  # of each memory

    def free(self, lifetime: int) -> None:
        ended = self._trace.allocations[lifetime]
        self._freed[ended.memory].append(ended)

    def before(self, step: Step) -> Iterator[int]:
        """Those that the step, or the allocation in front of it, comes after."""
        if step.kind is Kind.CHOICE and step.allocation >= 0:
            yield step.allocation
        for access in step.accesses:
            if access.lifetime >= 0 and access.lifetime not in self._begun:
                self._begun.add(access.lifetime)
                yield from self._replaced(self._trace.allocations[access.lifetime])

    def _replaced(self, new: Allocation) -> Iterator[int]:
        freed = self._freed[new.memory]
        stop = new.start + new.size
        for old in list(freed):
            if old.start < stop and new.start < old.start + old.size:
                yield old.id
                if new.start <= old.start and old.start + old.size <= stop:
                    freed.remove(old)  # who takes it after this comes after this one's free
