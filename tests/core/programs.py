"""Random toy programs, and every outcome that they have, by trying all that the device may do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from redgreen.faults import Fault
from redgreen.run import Outcome
from redgreen.schedule import Schedule

from .toy import Buffer, Event, Op, Toy, ToyRunner

STREAMS, BUFFERS, EVENTS = 2, 2, 2

_streams = st.integers(0, STREAMS - 1)
_buffers = st.integers(0, BUFFERS - 1)
_events = st.integers(0, EVENTS - 1)

Statement = tuple[Any, ...]

STATEMENTS: st.SearchStrategy[Statement] = st.one_of(
    st.tuples(st.just("kernel"), _streams, _buffers, _buffers),
    st.tuples(st.just("fill"), _streams, _buffers),
    st.tuples(st.just("upload"), _streams, _buffers),
    st.tuples(st.just("download"), _streams, _buffers),
    st.tuples(st.just("write")),
    st.tuples(st.just("read")),
    st.tuples(st.just("record"), _events, _streams),
    st.tuples(st.just("wait"), _streams, _events),
    st.tuples(st.just("join"), _streams, _streams),
    st.tuples(st.just("sync"), _events),
    st.tuples(st.just("renew"), _streams, _buffers, st.booleans()),
    st.tuples(st.just("ask"), _events),
)


class Program:
    """Interprets statements; every one has a site of its own (``at`` is its place in the list)."""

    def __init__(self, statements: Sequence[Statement]) -> None:
        self.statements = statements

    def __call__(self, m: Toy) -> Any:
        streams = [m.stream() for _ in range(STREAMS)]
        owners = [streams[i % STREAMS] for i in range(BUFFERS)]
        buffers = [m.al(owner) for owner in owners]
        host, events = m.pinned(1), [m.event() for _ in range(EVENTS)]
        seen: list[Any] = []
        for place, statement in enumerate(self.statements):
            self._do(m, statement, place, streams, owners, buffers, host, events, seen)
        m.done()
        return [*seen, host, *(m.rd_device(buffer) for buffer in buffers)]

    def _do(self, m: Toy, statement: Statement, place: int, streams: list[Any],
            owners: list[Any], buffers: list[Buffer], host: Buffer, events: list[Event],
            seen: list[Any]) -> None:
        at, value = str(place), 100 + place
        match statement:
            case ("kernel", s, a, b):
                m.k(streams[s], [buffers[a]], buffers[b], value)
            case ("fill", s, b):
                m.fill(streams[s], buffers[b], value)
            case ("upload", s, b):
                m.cp(streams[s], host, buffers[b])
            case ("download", s, b):
                m.cp(streams[s], buffers[b], host)
            case ("write",):
                m.wr(host, value)
            case ("read",):
                seen.append(m.rd(host))
            case ("record", e, s):
                m.rec(events[e], streams[s], at)
            case ("wait", s, e):
                m.wait(streams[s], events[e], at)
            case ("join", s, t) if s != t:
                m.join(streams[s], streams[t], at)
            case ("sync", e):
                m.hsync(events[e], at)
            case ("renew", s, b, recorded):
                if recorded:
                    m.rs(buffers[b], streams[s], at)
                m.free(buffers[b])
                buffers[b] = m.al(owners[b])
                m.fill(owners[b], buffers[b], value)
            case ("ask", e) if m.query(events[e]):
                m.wr(host, value)


class _Script:
    """Stands in for a random generator: replays decisions, then takes the first of what is left."""

    def __init__(self, decisions: list[int]) -> None:
        self.decisions, self.taken, self.widths = decisions, 0, list[int]()

    def _decide(self, width: int) -> int:
        decided = self.decisions[self.taken] if self.taken < len(self.decisions) else 0
        self.taken += 1
        self.widths.append(width)
        return decided

    def random(self) -> float:
        return (0.9, 0.0)[self._decide(2)]

    def choice(self, heads: list[Op]) -> Op:
        return heads[self._decide(len(heads))]


class _Scripted(ToyRunner):
    script: _Script

    def machine(self, schedule: Schedule, faults: frozenset[Fault], limit: int | None) -> Toy:
        toy = super().machine(schedule, faults, limit)
        toy.random = self.script
        return toy


def all_outcomes(
    program: Any, faults: frozenset[Fault] = frozenset(), limit: int = 4000
) -> set[Outcome] | None:
    """By brute force: what the device does after each host step, all combinations."""
    runner, outcomes, decisions = _Scripted(program), set[Outcome](), list[int]()
    for _ in range(limit):
        runner.script = _Script(decisions)
        outcomes.add(runner.run(Schedule("random"), faults).outcome)
        decisions = decisions[: len(runner.script.widths)]
        decisions += [0] * (len(runner.script.widths) - len(decisions))
        while decisions and decisions[-1] + 1 >= runner.script.widths[len(decisions) - 1]:
            decisions.pop()
        if not decisions:
            return outcomes
        decisions[-1] += 1
    return None
