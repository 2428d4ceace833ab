"""Names for people: sites, steps, memories, conflicts, edges."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePath

from .races import Conflict
from .trace import EdgeSite, Site, Trace


def place(site: Site) -> str:
    return f"{PurePath(site.file).name}:{site.line}"


def edge_name(edge: EdgeSite) -> str:
    return f"{place(edge.site)} {edge.kind}"


def edge_ids(edges: list[EdgeSite]) -> list[str]:
    """Names of edges, with a suffix where two would be the same."""
    seen: Counter[str] = Counter()
    names = []
    for edge in edges:
        name = edge_name(edge)
        seen[name] += 1
        names.append(name if seen[name] == 1 else f"{name} ({seen[name]})")
    return names


def step_name(trace: Trace, index: int) -> str:
    step = trace.steps[index]
    return f"{place(trace.sites[step.site])} {step.op} ({trace.agents[step.agent].name})"


def memory_name(trace: Trace, conflict: Conflict) -> str:
    """The block that a conflict is about, as the earlier of the two accesses knew it."""
    allocation = trace.allocations[conflict.lifetimes[0]]
    kind = "pinned" if allocation.pinned else "device"
    where = place(trace.sites[allocation.site])
    return f"{kind} {allocation.size} B allocated at {where}"


def conflict_name(trace: Trace, conflict: Conflict) -> str:
    first, second = step_name(trace, conflict.first), step_name(trace, conflict.second)
    return f"{conflict.hazard} {first} -> {second}, {memory_name(trace, conflict)}"
