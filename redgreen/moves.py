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
    places = _Places(trace)
    for step in _made_at(trace, edge):
        if step.kind is Kind.PUBLISH:
            found = places.latest(step)
            if found is not None:
                moves[step.index] = found.index, replace(step, issuer=found.issuer)
    return _moved(trace, moves)


def late(trace: Trace, edge: EdgeSite) -> Trace:
    """Each wait at the site comes after the next access of whoever waits, not before it."""
    moves: _Moves = {}
    places = _Places(trace)
    for step in _made_at(trace, edge):
        if step.kind in (Kind.ACQUIRE, Kind.DRAIN):
            moves[step.index] = places.after_next(step), step
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


class _Places:
    """Where calls can move to."""

    def __init__(self, trace: Trace) -> None:
        self._steps = trace.steps
        self._first: dict[tuple[int, int], Step] = {}  # (launch, agent) -> its first step there
        self._last: dict[tuple[int, int], int] = {}
        self._end: dict[int, int] = {}  # launch -> its last step
        for step in trace.steps:
            if step.launch:
                self._first.setdefault((step.launch, step.agent), step)
                self._last[step.launch, step.agent] = self._end[step.launch] = step.index

    def latest(self, step: Step) -> Step | None:
        """The latest access of the step's stream before it; of a launch, its first step there."""
        for index in range(step.index - 1, -1, -1):
            other = self._steps[index]
            if other.agent != step.agent:
                continue
            if other.launch == step.launch:
                if other.kind is Kind.ACCESS:
                    return other
            elif not step.launch:
                return self._first[other.launch, other.agent]
        return None

    def after_next(self, step: Step) -> int:
        """Behind the next access of the step's agent; without one, where nothing follows."""
        for index in range(step.index + 1, len(self._steps)):
            other = self._steps[index]
            if other.agent != step.agent:
                continue
            if other.launch == step.launch:
                if other.kind is Kind.ACCESS:
                    return index + 1
            elif not step.launch:
                return self._last[other.launch, other.agent] + 1
        return self._end.get(step.launch, len(self._steps))


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
