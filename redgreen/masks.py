"""Edges that cover each other: step 6, and what covers an edge that looks dead."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from .describe import place
from .edges import covers, cuts, edges_of
from .explore import spread
from .judge import Base, Judgement, indices, judge, lost_orders
from .races import Conflict
from .trace import EdgeSite, Trace

MAX_SETS = 64  # candidate sets that are tried
MAX_COVERS = 40  # conflicts that are looked at for what covers an edge


@dataclass(slots=True)
class Masks:
    """The minimal sets of edges whose joint suppression changes something."""

    sets: dict[frozenset[EdgeSite], Judgement] = field(default_factory=dict)
    open: dict[EdgeSite, str] = field(default_factory=dict)  # a bound was hit: why

    def of(self, edge: EdgeSite) -> list[frozenset[EdgeSite]]:
        return [mask for mask in self.sets if edge in mask]


def find_masks(
    base: Base, dead: list[EdgeSite], progress: Callable[[str, int, int], None]
) -> Masks:
    """Sets of edges, each dead alone, that cut a conflict together; confirmed by runs."""
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
