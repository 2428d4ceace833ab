"""Conflicts of a trace: accesses of two agents to the same bytes, at least one a write.

A conflict that the order decides is what sync edges exist for; one that it does not is a race. They
are found in one pass: each memory is a set of cells (distinct extents), each cell knows its
overlapping neighbours and the accesses that each agent made. The last access of an agent decides
for all its earlier ones: if the last comes before, so do they. Hence none is missed. Of long runs
what can race with nothing any more is forgotten.

A segment of device memory has thousands of lifetimes, of all sizes. Where a cell has many
neighbours, a write forgets those that it covers, if all that was done to them comes before it:
whatever races with that would race with the write as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass

from .cells import Cell, Memory, Seen
from .order import NOTHING, Clocks, vanishes
from .trace import Access, Kind, Step, Trace

FORGET = 1 << 16  # steps after which what no later step can race with is dropped


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two steps, in issue order, that touch the same bytes of one memory."""

    first: int
    second: int
    memory: int
    hazard: str
    lifetimes: tuple[int, int]


@dataclass(slots=True)
class Analysis:
    """What one pass over a trace found."""

    races: list[Conflict]
    count: int  # conflicts between an access and the latest ones of each other agent
    truncated: bool  # more races than the limit: not all are listed
    ordered: list[Conflict]  # the earliest and latest few of each pair of (site, agent)


def analyse(
    trace: Trace, suppressed: Set[int] = NOTHING, every: bool = False, limit: int = 20_000
) -> Analysis:
    """One pass. ``every``: all racing pairs, not only those with an agent's latest access."""
    finder, clocks, hosts = Finder(trace, every, limit), Clocks(len(trace.agents)), _Hosts(trace)
    for step in trace.steps:
        if not vanishes(step, suppressed):
            clock = clocks.advance(step)
            for access in step.accesses:
                finder.visit(step, access, clock)
            if step.kind is Kind.FREE and hosts.several:
                finder.frees[step.allocation] = clock.copy()
        if step.index % FORGET == FORGET - 1:
            floor = hosts.floor(clocks, step.index)
            finder.forget(floor)
            clocks.forget(floor)
    ordered = [finder.conflict(*seen) for kept in finder.samples.values() for seen in kept]
    return Analysis(list(finder.races.values()), finder.count, finder.truncated, ordered)


class _Hosts:
    """What every step that is still to come is known to come after.

    A step comes after all that its issuer came after when it was issued. So what all host threads
    that have steps left came after can race with nothing any more.
    """

    def __init__(self, trace: Trace) -> None:
        self._agents = len(trace.agents)
        self.several = sum(a.host for a in trace.agents) > 1
        self._last = dict.fromkeys((a.id for a in trace.agents if a.host), -1)
        self._last |= {step.issuer: step.index for step in trace.steps}

    def floor(self, clocks: Clocks, index: int) -> list[int]:
        """After step ``index``: for each agent, one past the last such step."""
        left = [clocks.clock(host) for host, last in self._last.items() if last > index]
        return [min((clock[agent] for clock in left), default=0) for agent in range(self._agents)]


def all_races(trace: Trace) -> Analysis:
    """With all racing pairs; a race-free trace needs no histories to know that it is."""
    found = analyse(trace)
    return analyse(trace, every=True) if found.races else found


def hazard(first: Access, second: Access, host: bool) -> str:
    """The name of a conflict, in issue order."""
    if first.lifetime != second.lifetime:
        return "UAF"
    written = "RAW" if second.reads else "WAW"
    name = written if first.writes else "WAR"
    return f"HOST-{name}" if host else name


_RANK = {"UAF": 3, "RAW": 2, "WAW": 1, "WAR": 0}  # one pair of steps may have several accesses
_SAMPLE = 3  # ordered conflicts kept per group, at either end
_CROWD = 16  # neighbours of a cell

class Finder:
    """The state of one pass."""

    def __init__(self, trace: Trace, every: bool, limit: int) -> None:
        self._trace, self._every, self._limit = trace, every, limit
        self.memories: defaultdict[int, Memory] = defaultdict(Memory)
        self.races: dict[tuple[int, int, int], Conflict] = {}
        # Lifetime -> the clock of its free, if several threads free and allocate. Memory is handed
        # out under a lock: whoever has the range next comes after that free, but only with this.
        self.frees: dict[int, list[int]] = {}
        self.samples: dict[tuple[int, int, int, int], list[tuple[int, Access, Step, Access]]] = {}
        self.count = 0
        self.truncated = False

    def visit(self, step: Step, access: Access, clock: list[int]) -> None:
        if access.extent.start == access.extent.stop:
            return
        cell = self.memories[access.memory].cell(access.extent)
        me = step.agent
        for near in cell.near:
            for agent, seen in near.writes.items():
                if agent != me:
                    self._meet(agent, seen, clock[agent], step, access)
            if access.writes:
                for agent, seen in near.reads.items():
                    if agent != me:
                        self._meet(agent, seen, clock[agent], step, access)
        for table in [cell.reads] * access.reads + [cell.writes] * access.writes:
            history = table.setdefault(me, [])
            if history and not self._every:
                history[0] = (step.index, access)
            else:
                history.append((step.index, access))
        if access.writes and len(cell.near) > _CROWD and not self._every:
            self._clear(cell, access, clock)

    def _clear(self, cell: Cell, access: Access, clock: list[int]) -> None:
        """Forgets what this write covers and comes after."""
        extent = access.extent
        if extent.lattice:
            return
        for near in [*cell.near]:
            inside = extent.start <= near.extent.start and near.extent.stop <= extent.stop
            if inside and near is not cell and all(
                seen[-1][0] < clock[agent]
                for table in (near.reads, near.writes) for agent, seen in table.items()
            ):
                self.memories[access.memory].drop(near)

    def forget(self, floor: list[int]) -> None:
        for id, memory in list(self.memories.items()):
            memory.forget(floor)
            if not memory.cells:
                del self.memories[id]
        self.frees = {id: clock for id, clock in self.frees.items()
                      if any(map(int.__gt__, clock, floor))}

    def _meet(self, agent: int, seen: list[Seen], known: int, step: Step, access: Access) -> None:
        """``known``: one past the last step of the other agent that comes before this one."""
        index, earlier = seen[-1]
        if index < known or self._freed(agent, index, earlier, access):
            self.count += 1
            self._sample(index, earlier, step, access)
            return
        for index, earlier in reversed(seen):
            if index < known or self._freed(agent, index, earlier, access):
                break
            self._race(index, earlier, step, access)

    def _freed(self, agent: int, index: int, earlier: Access, access: Access) -> bool:
        """Did the earlier use come before the free of its lifetime?"""
        if earlier.lifetime == access.lifetime or not self.frees:
            return False
        clock = self.frees.get(earlier.lifetime)
        return clock is not None and clock[agent] > index

    def _race(self, index: int, earlier: Access, step: Step, access: Access) -> None:
        key = (index, step.index, access.memory)
        if key not in self.races and len(self.races) >= self._limit:
            self.truncated = True
            return
        found = self.conflict(index, earlier, step, access)
        known = self.races.get(key)
        if known is None or _rank(found) > _rank(known):
            self.races[key] = found

    def _sample(self, index: int, earlier: Access, step: Step, access: Access) -> None:
        other = self._trace.steps[index]
        group = (other.site, step.site, other.agent, step.agent)
        kept = self.samples.get(group)
        if kept is None:
            kept = self.samples[group] = []
        if kept and kept[-1][0] == index and kept[-1][2] is step:
            return
        if len(kept) == 2 * _SAMPLE:
            del kept[_SAMPLE]
        kept.append((index, earlier, step, access))

    def conflict(self, index: int, earlier: Access, step: Step, access: Access) -> Conflict:
        agents = self._trace.agents
        host = agents[self._trace.steps[index].agent].host or agents[step.agent].host
        return Conflict(index, step.index, access.memory, hazard(earlier, access, host),
                        (earlier.lifetime, access.lifetime))


def _rank(conflict: Conflict) -> int:
    return _RANK[conflict.hazard.removeprefix("HOST-")]
