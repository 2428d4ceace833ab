"""What moving or redirecting a sync call does to a trace: the trace that the mutated program makes.

Pure functions of (trace, call site). Accesses stay in their order; what the waits are bound to is
derived again by `redgreen.order`, as for edges that are taken out. A launch of a graph counts as
one step from outside, and a call inside of one does not leave it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from .trace import EdgeSite, Kind, Step, Trace

Move = Callable[[Trace, EdgeSite], Trace]
_Moves = dict[int, tuple[int, Step]]  # step -> where in front of it goes, and what goes there


def early(trace: Trace, edge: EdgeSite) -> Trace:
    """Each record at the site is made before the latest access of its stream, not after it."""
    moves: _Moves = {}
    for step in _made_at(trace, edge):
        if step.kind is Kind.PUBLISH:
            found = _latest(trace, step)
            if found is not None:
                moves[step.index] = found.index, replace(step, issuer=found.issuer)
    return _moved(trace, moves)


def late(trace: Trace, edge: EdgeSite) -> Trace:
    """Each wait at the site comes after the next access of whoever waits, not before it."""
    moves: _Moves = {}
    for step in _made_at(trace, edge):
        if step.kind in (Kind.ACQUIRE, Kind.DRAIN):
            moves[step.index] = _after_next(trace, step), step
    return _moved(trace, moves)


def redirected(trace: Trace, edge: EdgeSite) -> Trace:
    """Each record or wait at the site is made on another stream: see `wrong_stream`."""
    steps = list(trace.steps)
    kind = Kind.PUBLISH if edge.kind == "record" else Kind.ACQUIRE
    for step in _made_at(trace, edge):
        if step.kind is kind and not step.launch and step.current >= 0:
            default = next(agent.id for agent in trace.agents if not agent.host)
            agent = wrong_stream(step.agent, step.current, default)
            steps[step.index] = replace(step, agent=agent)
    return replace(trace, steps=steps)


def wrong_stream(named: int, current: int, default: int) -> int:
    """The stream that a slip would have hit: the current one where another was named, else (the
    with-block is missing) the default stream."""
    return current if current != named else default


def _made_at(trace: Trace, edge: EdgeSite) -> list[Step]:
    mine = {index for index, other in enumerate(trace.edges) if other == edge}
    return [step for step in trace.steps if step.allocation < 0 and mine.intersection(step.edges)]


def _latest(trace: Trace, step: Step) -> Step | None:
    """The latest access of the step's stream before it; of a launch, its first step there."""
    for other in reversed(trace.steps[: step.index]):
        if other.agent != step.agent:
            continue
        if other.launch == step.launch:
            if other.kind is Kind.ACCESS:
                return other
        elif not step.launch:
            return next(first for first in trace.steps
                        if first.launch == other.launch and first.agent == step.agent)
    return None


def _after_next(trace: Trace, step: Step) -> int:
    """The place behind the next access of the step's agent; without one, where nothing follows."""
    last_of_launch = len(trace.steps)
    for other in trace.steps[step.index + 1 :]:
        if step.launch and other.launch == step.launch:
            last_of_launch = other.index
        if other.agent != step.agent:
            continue
        if other.launch == step.launch:
            if other.kind is Kind.ACCESS:
                return other.index + 1
        elif not step.launch:
            return 1 + max(last.index for last in trace.steps
                           if last.launch == other.launch and last.agent == step.agent)
    return last_of_launch


def _moved(trace: Trace, moves: _Moves) -> Trace:
    """The trace with these steps in front of those places, numbered anew."""
    arriving: dict[int, list[tuple[int, Step]]] = {}
    for old, (place, step) in moves.items():
        arriving.setdefault(place, []).append((old, step))
    order: list[tuple[int, Step]] = []
    for index in range(len(trace.steps) + 1):
        order += arriving.get(index, ())
        if index < len(trace.steps) and index not in moves:
            order.append((index, trace.steps[index]))
    place_of = {old: new for new, (old, _) in enumerate(order)}
    steps = [replace(step, index=new) for new, (_, step) in enumerate(order)]
    return replace(trace, steps=steps, execution=[place_of[i] for i in trace.execution])
