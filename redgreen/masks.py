"""Edges that only matter together: step 6, and what covers an edge that looks dead.

Two edges can cover each other: both order the same conflict, and either is enough. Or each loses a
conflict of its own that no byte shows, and the output changes only when both are lost (the larger
of two flags, each set on a stream of its own). The first kind is read off the trace, the second is
found by taking out everything that looks dead at once: whatever remains is dead together as well.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import combinations

from .describe import place
from .directed import spread
from .edges import covers, cuts, edges_of
from .judge import Base, Judgement, indices, judge, lost_orders
from .races import Conflict
from .trace import EdgeSite, Trace

MAX_SETS = 64  # candidate sets that are tried, of either kind
MAX_COVERS = 40  # conflicts that are looked at for what covers an edge

Progress = Callable[[str, int, int], None]


@dataclass(slots=True)
class Masks:
    """The minimal sets of edges whose joint suppression changes something."""

    sets: dict[frozenset[EdgeSite], Judgement] = field(default_factory=dict)
    open: dict[EdgeSite, str] = field(default_factory=dict)  # a bound was hit: why
    doubt: str = ""  # why what is dead alone was not shown to be dead together

    def of(self, edge: EdgeSite) -> list[frozenset[EdgeSite]]:
        return [mask for mask in self.sets if edge in mask]


def find_masks(base: Base, dead: list[EdgeSite], progress: Progress) -> Masks:
    """Sets of edges, each dead alone, that change something together; confirmed by runs."""
    masks = _covering(base, dead, progress)
    _joint(base, dead, masks, progress)
    return masks


def _covering(base: Base, dead: list[EdgeSite], progress: Progress) -> Masks:
    """Sets that cut a conflict together."""
    masks = Masks()
    candidates = _candidates(base, dead)
    for rank, edges in enumerate(candidates):
        if any(mask <= edges for mask in masks.sets):
            continue
        progress("sets of edges", rank, len(candidates))
        if rank >= MAX_SETS:
            masks.open |= dict.fromkeys(edges, f"more than {MAX_SETS} sets cover each other")
            continue
        found = judge(base, edges)
        if found.changed:
            masks.sets[edges] = found
        elif found.changed is None:
            masks.open |= dict.fromkeys(edges, found.reason)
    return masks


def _joint(base: Base, dead: list[EdgeSite], masks: Masks, progress: Progress) -> None:
    """Sets that change something though no conflict of theirs shows alone, or larger ones."""
    every = [edge for edge in dead if edge not in masks.open]
    tries = _Tries(base, progress)
    if len(every) < 2 or not tries.changed(every):
        masks.doubt = tries.doubt
        return
    lossy = [edge for edge in every if lost_orders(base, frozenset((edge,)))]
    for pair in combinations(lossy, 2):
        if frozenset(pair) not in masks.sets and tries.changed(list(pair)):
            masks.sets[frozenset(pair)] = tries.known[frozenset(pair)]
    for edge in every:
        if not masks.of(edge):
            mask = _mask_of(tries, every, edge)
            if mask is not None:
                masks.sets[mask] = tries.known[mask]
    masks.doubt = tries.doubt


def _mask_of(tries: _Tries, every: list[EdgeSite], edge: EdgeSite) -> frozenset[EdgeSite] | None:
    """A set that changes something, and nothing without ``edge``."""
    pools = [every]
    while pools:
        pool = pools.pop()
        if not tries.changed(pool):
            continue
        smallest = _smallest(tries, pool, edge)
        others = [other for other in smallest if other is not edge]
        if not tries.changed(others):
            return frozenset(smallest)
        # The others are such a set by themselves. Without one of them, this edge may be in another.
        pools += [[e for e in pool if e is not other] for other in others]
    return None


@dataclass(slots=True)
class _Tries:
    """Judgements of sets, each made once."""

    base: Base
    progress: Progress
    doubt: str = ""
    known: dict[frozenset[EdgeSite], Judgement] = field(default_factory=dict)

    def changed(self, edges: list[EdgeSite]) -> bool:
        key = frozenset(edges)
        if not key:
            return False
        found = self.known.get(key)
        if found is None:
            self.progress("what looks dead, together", len(self.known), MAX_SETS)
            few = len(self.known) < MAX_SETS
            found = judge(self.base, key) if few else Judgement(None, f"more than {MAX_SETS} sets")
            self.known[key] = found
            if found.changed is None:
                self.doubt = self.doubt or found.reason
        return bool(found.changed)


def _smallest(tries: _Tries, every: list[EdgeSite], keep: EdgeSite) -> list[EdgeSite]:
    """A set that changes something, with ``keep``: leave out halves, quarters, ... of the others
    (Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input, 2002)."""
    rest = [edge for edge in every if edge is not keep]
    size = len(rest)
    while size:
        size = (size + 1) // 2
        for start in range(len(rest) - len(rest) % size, -1, -size):
            fewer = rest[:start] + rest[start + size :]
            if len(fewer) < len(rest) and tries.changed([*fewer, keep]):
                rest = fewer
        size -= size == 1  # the last turn
    return [*rest, keep]


def _candidates(base: Base, dead: list[EdgeSite]) -> list[frozenset[EdgeSite]]:
    """From each conflict's own cuts. Taking out all dead edges at once shows the conflicts that
    nothing else orders; if there is none, nothing is masked."""
    found: dict[frozenset[EdgeSite], None] = {}
    for part in lost_orders(base, frozenset(dead)):
        trace = part.trace
        for conflict in spread(trace, part.conflicts, 6):
            for cut in cuts(trace, conflict, indices(trace, dead)):
                if len(cut.edges) > 1:
                    found[frozenset(trace.edges[i] for i in cut.edges)] = None
    return sorted(found, key=len)


def covered_by(base: Base, edge: EdgeSite, ids: Mapping[EdgeSite, str]) -> tuple[str, ...]:
    """What orders the conflicts of an edge when it is gone."""
    names: dict[str, None] = {}
    for key, run in base.variants():
        trace = run.trace
        for index in indices(trace, [edge]):
            places = [step.index for step in trace.steps if index in step.edges]
            conflicts = [c for c in base.analyses[key].ordered if _between(c, places)]
            conflicts.sort(key=lambda c: c.second - c.first)
            for conflict in conflicts[:MAX_COVERS]:
                way = covers(trace, conflict, index)
                if way is not None:
                    names |= dict.fromkeys(_names(trace, way, ids))
    return tuple(names)


def _between(conflict: Conflict, places: list[int]) -> bool:
    return any(conflict.first < place < conflict.second for place in places)


def _names(trace: Trace, way: tuple[int, ...], ids: Mapping[EdgeSite, str]) -> list[str]:
    names = [ids[trace.edges[edge]] for edge in sorted(edges_of(trace, way))]
    names += [f"{place(trace.sites[trace.steps[i].site])} {trace.steps[i].op} (implicit)"
              for i in way if not trace.steps[i].edges]
    return names or ["program order"]
