"""What is no verdict but worth knowing: shapes of synchronization that look wrong, or that only
happen to work."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from .describe import conflict_name, place, step_name
from .edges import path
from .hostorder import unfixed
from .lifetimes import latent_frees
from .overwait import over_waits, rearmed
from .races import Analysis
from .trace import Kind, Trace
from .verdict import Diagnostic

MAX_INCIDENTAL = 20
MAX_LOOKED_AT = 400
MAX_HOST_ORDER = 20


def at(trace: Trace, site: int, kind: str, message: str) -> Diagnostic:
    where = trace.sites[site]
    return Diagnostic(kind, where.file, where.line, message)


def from_trace(trace: Trace, found: Analysis, hosts_explored: bool) -> Iterator[Diagnostic]:
    """All that a trace shows by itself, each once. Where the orders of host threads were explored
    there is nothing to say of them: those that matter are races."""
    for note in trace.notes:
        if note.kind != "clock":
            yield at(trace, note.site, note.kind, note.message)
    for escape in trace.escapes:
        yield Diagnostic("escaped", "", 0, f"host accesses to {escape} are not seen; "
                         "the verdict assumes that they are ordered")
    yield from _latent(trace)
    yield from _unawaited(trace)
    yield from _too_much(trace, found)
    yield from _incidental(trace, found)
    if not hosts_explored:
        yield from _host_order(trace, found)


def unique(diagnostics: Iterable[Diagnostic]) -> tuple[Diagnostic, ...]:
    return tuple(dict.fromkeys(diagnostics))


def _latent(trace: Trace) -> Iterator[Diagnostic]:
    said: set[tuple[int, int, int]] = set()  # sizes may grow from turn to turn
    for latent in latent_frees(trace):
        free = trace.steps[latent.free]
        allocation = trace.allocations[free.allocation]
        sites = free.site, allocation.site, trace.steps[latent.use].site
        if sites in said:
            continue
        said.add(sites)
        kind = "pinned" if allocation.pinned else "device"
        born = place(trace.sites[allocation.site])
        yield at(trace, free.site, "latent-use-after-free",
                 f"{kind} {allocation.size} B allocated at {born} is freed while "
                 f"{step_name(trace, latent.use)} may still use it")


def _unawaited(trace: Trace) -> Iterator[Diagnostic]:
    """Record sites none of whose records anything looked at."""
    latest: dict[object, int] = {}
    awaited: set[int] = set()
    records: dict[int, int] = {}  # site -> edge
    for step in trace.steps:
        if step.kind is Kind.PUBLISH:
            latest[step.key] = step.site
            for edge in step.edges:
                if trace.edges[edge].kind == "record" and step.op == "record":  # not for timing
                    records[step.site] = edge
        elif step.kind in (Kind.ACQUIRE, Kind.CHOICE) and step.key in latest:
            awaited.add(latest[step.key])
    awaited.update(trace.steps[again.earlier].site for again in rearmed(trace))  # said there
    for site in records:
        if site not in awaited:
            yield at(trace, site, "event-without-waiter", "nothing waits for this record")


def _too_much(trace: Trace, found: Analysis) -> Iterator[Diagnostic]:
    """Waits that are bound to a later record than they need."""
    for again in rearmed(trace):
        earlier, latest = trace.steps[again.earlier], trace.steps[again.latest]
        lines = f"{place(trace.sites[earlier.site])} and again by {place(trace.sites[latest.site])}"
        harm = "waits for the latter alone" if again.lost else "the former would have been enough"
        yield at(trace, trace.steps[again.wait].site, "event-rearmed",
                 f"the event was recorded by {lines} before this wait: {harm}")
    if found.races:
        return
    for wait in over_waits(trace):
        record = place(trace.sites[trace.steps[wait.record].site])
        yield at(trace, trace.steps[wait.wait].site, "over-wait",
                 f"waits for the latest record by {record}; the one before is enough, every time")


def _incidental(trace: Trace, found: Analysis) -> Iterator[Diagnostic]:
    """Conflicts that only an implicit host sync orders which is there for other data."""
    if not any(step.kind is Kind.DRAIN and not step.edges for step in trace.steps):
        return
    seen: set[tuple[int, int, int]] = set()
    conflicts = sorted(found.ordered, key=lambda c: c.second - c.first)[:MAX_LOOKED_AT]
    for conflict in conflicts:
        way = path(trace, conflict.first, conflict.second) or ()
        drains = [i for i in way if trace.steps[i].kind is Kind.DRAIN and not trace.steps[i].edges]
        if not drains:
            continue
        sync, second = trace.steps[drains[0]], trace.steps[conflict.second]
        key = (sync.site, trace.steps[conflict.first].site, second.site)
        if key in seen or sync.site == second.site:
            continue
        if path(trace, conflict.first, conflict.second, drains=False) is None:
            seen.add(key)
            yield at(trace, sync.site, "incidental-order",
                     f"only this implicit sync orders {conflict_name(trace, conflict)}")
        if len(seen) >= MAX_INCIDENTAL:
            return


def _host_order(trace: Trace, found: Analysis) -> Iterator[Diagnostic]:
    """Conflicts that the recorded order of the host threads decides, and nothing else."""
    seen: dict[tuple[int, int, int, int], None] = {}
    for conflict in unfixed(trace, found):
        first, second = trace.steps[conflict.first], trace.steps[conflict.second]
        key = first.site, second.site, first.agent, second.agent
        if key in seen or len(seen) >= MAX_HOST_ORDER:
            continue
        seen[key] = None
        if first.agent == second.agent:
            threads = " and ".join(trace.agents[step.issuer].name for step in (first, second))
            lines = " and ".join(place(trace.sites[step.site]) for step in (first, second))
            what = f"{threads} enqueue on {trace.agents[first.agent].name} at {lines} in an order"
        else:
            what = f"{conflict_name(trace, conflict)}: ordered by calls of host threads in an order"
        yield at(trace, second.site, "host-order", f"{what} that no lock, queue, start or join "
                 "fixes; the verdicts hold for the recorded order only")
