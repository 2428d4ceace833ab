"""Changes to the program at a site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, get_args

from .trace import EdgeSite, Trace

Action = Literal[
    "drop", "cut", "poison", "wait", "early", "late", "stream", "collapse", "free", "unpin"
]
ACTIONS: tuple[str, ...] = get_args(Action)


@dataclass(frozen=True, slots=True)
class Fault:
    """``drop``: the call at ``edge`` is not made, at every instance of the site.

    A dropped record leaves the event at its older record; a dropped host sync lets the host read
    early; a dropped ``record_stream`` lets the allocator reuse at once. ``cut``: the same, but a
    call inside a capture still takes its stream into the graph; what is missing is the dependency.
    ``poison``: the pinned source of the copy at ``edge`` (kind "copy") is overwritten right after
    the copy is enqueued. ``wait``: no fault but its opposite; before each access of ``waiter`` at
    the site of ``edge`` it waits for what ``awaited`` was given so far. Both are names of agents.

    The others move or redirect the call at ``edge``, or change what an allocation (kind
    "allocation") gives; `redgreen.mutants` says how.
    """

    action: Action
    edge: EdgeSite
    waiter: str = ""
    awaited: str = ""
    uses: tuple[int, ...] = ()  # free: with which use each lifetime of the site dies, 0: it lives


def allocation_sites(trace: Trace) -> list[EdgeSite]:
    """Where the program allocated, as what faults of memory are about."""
    sites = dict.fromkeys(trace.sites[allocation.site] for allocation in trace.allocations)
    return [EdgeSite("allocation", site) for site in sites]
