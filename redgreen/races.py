"""Conflicts of a trace: accesses of two agents to the same bytes, at least one a write.

A conflict that the order decides is what sync edges exist for; one that it does not is a race. They
are found in one pass: each memory is a set of cells (distinct extents), each cell knows its
overlapping neighbours and the accesses that each agent made. The last access of an agent decides
for all its earlier ones: if the last comes before, so do they. Hence none is missed.

A segment of device memory has thousands of lifetimes, of all sizes. Where a cell has many
neighbours, a write forgets those that it covers, if all that was done to them comes before it:
whatever races with that would race with the write as well.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Set
from dataclasses import dataclass, field

from .extent import overlap
from .order import NOTHING, clocks
from .trace import Access, Extent, Step, Trace


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
    finder = _Finder(trace, every, limit)
    for step, clock in clocks(trace, suppressed):
        for access in step.accesses:
            finder.visit(step, access, clock)
    ordered = [finder.conflict(*seen) for kept in finder.samples.values() for seen in kept]
    return Analysis(list(finder.races.values()), finder.count, finder.truncated, ordered)


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

_Seen = tuple[int, Access]


@dataclass(slots=True, eq=False)
class _Cell:
    """One extent, who touched it, and the cells that share bytes with it (itself among them)."""

    extent: Extent
    near: list[_Cell] = field(default_factory=list)
    reads: dict[int, list[_Seen]] = field(default_factory=dict)
    writes: dict[int, list[_Seen]] = field(default_factory=dict)


class _Memory:
    """The cells of one memory, in buckets by size and place so that neighbours are found fast."""

    __slots__ = ("_buckets", "cells")

    def __init__(self) -> None:
        self.cells: dict[Extent, _Cell] = {}
        self._buckets: dict[int, dict[int, list[_Cell]]] = {}  # log2 of size -> place -> cells

    def cell(self, extent: Extent) -> _Cell:
        found = self.cells.get(extent)
        if found is None:
            found = self.cells[extent] = _Cell(extent)
            for other in self._candidates(extent):
                if overlap(extent, other.extent):
                    found.near.append(other)
                    other.near.append(found)
            found.near.append(found)
            level = (extent.stop - extent.start).bit_length()
            places = self._buckets.setdefault(level, {})
            for place in range(extent.start >> level, (max(extent.stop - 1, 0) >> level) + 1):
                places.setdefault(place, []).append(found)
        return found

    def forget(self, cell: _Cell) -> None:
        extent = cell.extent
        del self.cells[extent]
        for other in cell.near:
            if other is not cell:
                other.near.remove(cell)
        level = (extent.stop - extent.start).bit_length()
        places = self._buckets[level]
        for place in range(extent.start >> level, (max(extent.stop - 1, 0) >> level) + 1):
            places[place].remove(cell)
            if not places[place]:
                del places[place]

    def _candidates(self, extent: Extent) -> Iterable[_Cell]:
        found: dict[int, _Cell] = {}
        for level, places in self._buckets.items():
            low, high = extent.start >> level, extent.stop >> level
            wanted = range(low, high + 1)
            near = wanted if len(wanted) <= len(places) else [p for p in places if p in wanted]
            for place in near:
                for cell in places.get(place, ()):
                    found[id(cell)] = cell
        return found.values()


class _Finder:
    """The state of one pass."""

    def __init__(self, trace: Trace, every: bool, limit: int) -> None:
        self._trace, self._every, self._limit = trace, every, limit
        self._memories: defaultdict[int, _Memory] = defaultdict(_Memory)
        self.races: dict[tuple[int, int, int], Conflict] = {}
        self.samples: dict[tuple[int, int, int, int], list[tuple[int, Access, Step, Access]]] = {}
        self.count = 0
        self.truncated = False

    def visit(self, step: Step, access: Access, clock: list[int]) -> None:
        if access.extent.start == access.extent.stop:
            return
        cell = self._memories[access.memory].cell(access.extent)
        me = step.agent
        for near in cell.near:
            for agent, seen in near.writes.items():
                if agent != me:
                    self._meet(seen, clock[agent], step, access)
            if access.writes:
                for agent, seen in near.reads.items():
                    if agent != me:
                        self._meet(seen, clock[agent], step, access)
        for table in [cell.reads] * access.reads + [cell.writes] * access.writes:
            history = table.setdefault(me, [])
            if history and not self._every:
                history[0] = (step.index, access)
            else:
                history.append((step.index, access))
        if access.writes and len(cell.near) > _CROWD and not self._every:
            self._clear(cell, access, clock)

    def _clear(self, cell: _Cell, access: Access, clock: list[int]) -> None:
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
                self._memories[access.memory].forget(near)

    def _meet(self, seen: list[_Seen], known: int, step: Step, access: Access) -> None:
        """``known``: one past the last step of the other agent that comes before this one."""
        index, earlier = seen[-1]
        if index < known:
            self.count += 1
            self._sample(index, earlier, step, access)
            return
        for index, earlier in reversed(seen):
            if index < known:
                break
            self._race(index, earlier, step, access)

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
