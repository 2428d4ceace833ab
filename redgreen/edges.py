"""Which edges order a conflict, and which sets of them have to go before it loses its order.

Everything here looks at one conflict and the steps between its two accesses: every path from the
first to the second lies there. Cuts are found by a hitting-set search: find a path, take out one of
its edges, look for another path. So the work follows each conflict's own paths and never
enumerates tuples of edges.
"""

from __future__ import annotations

import heapq
from collections.abc import Hashable, Iterable, Set
from dataclasses import dataclass

from .order import NOTHING, vanishes
from .races import Conflict
from .trace import Kind, Trace

CUT_SIZE = 3

_Chain = tuple[int, "_Chain | None"]  # the sync steps of a path, last first


@dataclass(frozen=True, slots=True)
class Cut:
    """Edges (indices in Trace.edges) whose joint suppression makes a conflict a race."""

    edges: frozenset[int]
    conflict: Conflict


def path(
    trace: Trace, first: int, second: int, suppressed: Set[int] = NOTHING, drains: bool = True
) -> tuple[int, ...] | None:
    """The sync steps through which first comes before second, () for plain program or issue
    order, None if it does not. Without ``drains``, implicit host syncs are taken out as well.
    """
    root: _Chain = (first, None)
    after: dict[int, _Chain] = {trace.steps[first].agent: root}
    published: dict[Hashable, _Chain | None] = {}
    if trace.steps[first].kind is Kind.PUBLISH:
        published[trace.steps[first].key] = root
    for index in range(first + 1, second + 1):
        step = trace.steps[index]
        if vanishes(step, suppressed):
            continue
        if not drains and step.kind is Kind.DRAIN and not step.edges:
            continue
        agent = step.agent
        chain = after.get(agent)
        if chain is None and step.issuer in after:
            chain = after[agent] = after[step.issuer]
        if step.kind is Kind.PUBLISH:
            published[step.key] = (index, chain) if chain is not None else None
        elif chain is None and step.kind not in (Kind.ACCESS, Kind.FREE):
            source = _source(trace, index, after, published)
            if source is not None:
                chain = after[agent] = (index, source)
        if index == second:
            return _unwind(chain)
    return None


def _source(trace: Trace, index: int, after: dict[int, _Chain],
            published: dict[Hashable, _Chain | None]) -> _Chain | None:
    """What a sync step takes over from another agent that comes after the first access."""
    step = trace.steps[index]
    if step.kind is Kind.CHOICE and not step.taken:
        return None
    if step.kind is not Kind.DRAIN and step.key is not None and (p := published.get(step.key)):
        return p
    return next((after[target] for target in step.targets if target in after), None)


def _unwind(chain: _Chain | None) -> tuple[int, ...] | None:
    if chain is None:
        return None
    steps = []
    while chain is not None:
        steps.append(chain[0])
        chain = chain[1]
    return tuple(reversed(steps))[1:]


def edges_of(trace: Trace, steps: Iterable[int]) -> set[int]:
    return {edge for index in steps for edge in trace.steps[index].edges}


def cuts(trace: Trace, conflict: Conflict, removable: Set[int], size: int = CUT_SIZE) -> list[Cut]:
    """The minimal sets of at most ``size`` removable edges that cut all paths of a conflict."""
    found: list[frozenset[int]] = []
    heap: list[tuple[int, tuple[int, ...]]] = [(0, ())]
    seen: set[tuple[int, ...]] = {()}
    while heap:
        _, key = heapq.heappop(heap)
        gone = frozenset(key)
        if any(cut <= gone for cut in found):
            continue
        way = path(trace, conflict.first, conflict.second, gone)
        if way is None:
            found.append(gone)
            continue
        for index in way:
            more = frozenset(trace.steps[index].edges)
            larger = tuple(sorted(gone | more))
            if more and more <= removable and len(larger) <= size and larger not in seen:
                seen.add(larger)
                heapq.heappush(heap, (len(larger), larger))
    return [Cut(cut, conflict) for cut in found]


def covers(trace: Trace, conflict: Conflict, edge: int) -> tuple[int, ...] | None:
    """If the edge helps to order the conflict: the steps that still do when it is gone."""
    if not _carries(trace, conflict, edge):
        return None
    return path(trace, conflict.first, conflict.second, frozenset((edge,)))


def _carries(trace: Trace, conflict: Conflict, edge: int) -> bool:
    """Does a path of the conflict lead through the edge?"""
    published: dict[Hashable, int] = {}
    for index in range(conflict.first + 1, conflict.second + 1):
        step = trace.steps[index]
        if step.kind is Kind.PUBLISH:
            published[step.key] = index
        elif step.kind in (Kind.ACQUIRE, Kind.DRAIN, Kind.CHOICE):
            source = published.get(step.key) if step.key is not None else None
            mine = edge in step.edges
            if source is not None:
                mine = mine or edge in trace.steps[source].edges
            if not mine or not leads(trace, index, conflict.second):
                continue
            starts = [source] if source is not None else _last_of(trace, conflict.first, index)
            if any(leads(trace, conflict.first, start) for start in starts):
                return True
    return False


def leads(trace: Trace, first: int, second: int) -> bool:
    """Does first come before second, or is it the same step?"""
    return first == second or path(trace, first, second) is not None


def _last_of(trace: Trace, low: int, drain: int) -> list[int]:
    last = {step.agent: step.index for step in trace.steps[low:drain]}
    return [last[target] for target in trace.steps[drain].targets if target in last]
