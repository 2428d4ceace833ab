"""Waits that are right but cover too much, shown by binding them to an earlier record.

In a loop a wait often needs only what an earlier turn recorded: waiting for the latest record then
takes away the overlap that the streams are there for. And an event that is recorded twice before
anybody waits has lost its first record: who waits gets the later one. Both are shown on the trace:
bind the wait to the earlier record and look whether anything races. No bytes are at stake, so these
are diagnostics and no verdicts.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass, replace

from .races import analyse
from .trace import Kind, Trace

_NEVER = -1  # bound to no record: the wait returns at once


@dataclass(frozen=True, slots=True)
class OverWait:
    """Every turn of a wait would be served by the record of the turn before."""

    edge: int
    wait: int  # step indices, of the last turn
    record: int


@dataclass(frozen=True, slots=True)
class Rearmed:
    """An event was recorded again before a wait that an earlier record would have served, or that
    cannot serve what the earlier record marked.
    """

    wait: int  # step indices
    earlier: int
    latest: int
    lost: bool  # the records are of two streams: the wait does not cover the earlier one


def over_waits(trace: Trace) -> Iterator[OverWait]:
    """Of a race-free trace."""
    source = _sources(trace)
    waits: defaultdict[int, list[int]] = defaultdict(list)
    for index in source:
        for edge in trace.steps[index].edges:
            waits[edge].append(index)
    before = _previous(trace)
    for edge, indices in waits.items():
        moves = {i: before.get(source[i], _NEVER) for i in indices}
        if all(place == _NEVER for place in moves.values()):
            continue
        if analyse(trace, frozenset((edge,))).races and not analyse(_bound(trace, moves)).races:
            yield OverWait(edge, indices[-1], source[indices[-1]])


def rearmed(trace: Trace) -> Iterator[Rearmed]:
    """Waits for an event that was recorded more than once since anybody looked at it."""
    pending: defaultdict[Hashable, list[int]] = defaultdict(list)
    racy = bool(analyse(trace).races)
    for step in trace.steps:
        if step.kind is Kind.PUBLISH and step.allocation < 0:
            pending[step.key].append(step.index)
        elif step.kind in (Kind.ACQUIRE, Kind.CHOICE) and step.key is not None:
            *earlier, latest = pending.pop(step.key, None) or [_NEVER]
            for record in earlier[-1:]:
                lost = trace.steps[record].agent != trace.steps[latest].agent
                early = not racy and not analyse(_bound(trace, {step.index: record})).races
                if lost or early:
                    yield Rearmed(step.index, record, latest, lost)


def _sources(trace: Trace) -> dict[int, int]:
    """The record that each wait is bound to."""
    published: dict[Hashable, int] = {}
    found = {}
    for step in trace.steps:
        if step.kind is Kind.PUBLISH:
            published[step.key] = step.index
        elif (step.kind is Kind.ACQUIRE or step.taken) and step.key in published:
            found[step.index] = published[step.key]
    return found


def _previous(trace: Trace) -> dict[int, int]:
    """The record before, of the same line and stream."""
    last: dict[tuple[int, int], int] = {}
    found = {}
    for step in trace.steps:
        if step.kind is Kind.PUBLISH and step.edges:  # not what a graph's launch marks
            turn = (step.site, step.agent)
            if turn in last:
                found[step.index] = last[turn]
            last[turn] = step.index
    return found


def _bound(trace: Trace, moves: Mapping[int, int]) -> Trace:
    """The trace with some waits bound to other records."""
    source = _sources(trace)
    steps = list(trace.steps)
    for step in trace.steps:
        if step.kind is Kind.PUBLISH:
            steps[step.index] = replace(step, key=("record", step.index))
        elif step.key is not None and (step.kind is Kind.ACQUIRE or step.taken):
            record = moves.get(step.index, source.get(step.index, _NEVER))
            steps[step.index] = replace(step, key=("record", record))
    return replace(trace, steps=steps)
