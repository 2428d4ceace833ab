"""The order and the races against a naive transitive closure, on traces of random programs."""

from __future__ import annotations

from itertools import combinations
from unittest import mock

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.scale import pipeline
from redgreen import races
from redgreen.edges import cuts, path
from redgreen.lifetimes import latent_frees, reuse_matters
from redgreen.order import clocks, predecessors, vanishes
from redgreen.races import analyse
from redgreen.schedule import SERIAL
from redgreen.trace import Access, Agent, Allocation, EdgeSite, Extent, Kind, Site, Step, Trace

from .programs import STATEMENTS, Program
from .toy import ToyRunner

TRACES = st.lists(STATEMENTS, min_size=3, max_size=25).map(
    lambda statements: ToyRunner(Program(statements)).run(SERIAL).trace)


def closure(trace: Trace, gone: frozenset[int] = frozenset()) -> set[tuple[int, int]]:
    """Every pair of steps in order, by the rules as trace.py states them."""
    steps = [s for s in trace.steps if not vanishes(s, gone)]
    before: dict[int, set[int]] = {}
    for step in steps:
        earlier = [s for s in steps if s.index < step.index]
        direct = [s.index for s in earlier if s.agent in (step.agent, step.issuer)]
        taken = step.kind is Kind.ACQUIRE or (step.kind is Kind.CHOICE and step.taken)
        if taken and step.key is not None:
            records = [s.index for s in earlier if s.kind is Kind.PUBLISH and s.key == step.key]
            direct += records[-1:]
        if taken or step.kind is Kind.DRAIN:
            direct += [s.index for s in earlier if s.agent in step.targets]
        before[step.index] = set(direct).union(*(before[i] for i in direct))
    return {(a, b) for b, found in before.items() for a in found}


def drop_some(trace: Trace, mask: int) -> frozenset[int]:
    return frozenset(i for i in range(len(trace.edges)) if mask >> i & 1)


@settings(max_examples=100, deadline=None)
@given(TRACES, st.integers(0, 255))
def test_clocks_are_the_closure(trace: Trace, mask: int) -> None:
    gone = drop_some(trace, mask)
    expected = closure(trace, gone)
    kept = [s for s in trace.steps if not vanishes(s, gone)]
    for step, clock in clocks(trace, gone):
        for other in kept[: kept.index(step)]:
            assert (clock[other.agent] > other.index) is ((other.index, step.index) in expected)


@settings(max_examples=100, deadline=None)
@given(TRACES, st.integers(0, 255))
def test_races_are_complete(trace: Trace, mask: int) -> None:
    gone = drop_some(trace, mask)
    order = closure(trace, gone)
    expected, agents = set(), set()
    for a, b in combinations(trace.steps, 2):
        if a.agent == b.agent or (a.index, b.index) in order:
            continue
        if any(x.memory == y.memory and (x.writes or y.writes) for x in a.accesses
               for y in b.accesses):
            expected.add((a.index, b.index))
            agents.add((a.agent, b.index))
    found = analyse(trace, gone, every=True)
    assert {(r.first, r.second) for r in found.races} == expected
    some = {(r.first, r.second) for r in analyse(trace, gone).races}
    assert some <= expected
    assert {(trace.steps[a].agent, b) for a, b in some} == agents


ROWS = st.lists(st.tuples(st.integers(1, 3), st.integers(0, 6), st.integers(1, 5), st.booleans(),
                          st.booleans()), min_size=3, max_size=30)  # fmt: skip


@settings(max_examples=200, deadline=None)
@given(ROWS)
def test_what_is_forgotten_hides_no_race(rows: list[tuple[int, int, int, bool, bool]]) -> None:
    """Accesses of all sizes to one memory, by streams that sometimes wait for one another."""
    agents = [Agent(0, "host", True), *(Agent(i, f"stream {i}", False) for i in (1, 2, 3))]
    trace = Trace(agents=agents, sites=[Site("a.py", 1, "a")])
    for agent, start, size, writes, waits in rows:
        if waits:
            kinds = (agent % 3 + 1, Kind.PUBLISH), (agent, Kind.ACQUIRE)
            for who, kind in kinds:
                i = len(trace.steps)
                trace.steps.append(Step(i, who, 0, kind, "", 0, "", key=i + (kind is Kind.PUBLISH)))
        access = Access(0, len(trace.steps), Extent(start, start + size, size), not writes, writes)
        i = len(trace.steps)
        trace.steps.append(Step(i, agent, 0, Kind.ACCESS, "", 0, "", (access,)))
    every = analyse(trace, every=True).races
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("redgreen.races._CROWD", 0)
        some = analyse(trace).races
    assert {(r.first, r.second) for r in some} <= {(r.first, r.second) for r in every}
    assert {r.second for r in some} == {r.second for r in every}


@settings(max_examples=100, deadline=None)
@given(TRACES, st.integers(0, 255), st.booleans())
def test_what_is_forgotten_races_with_nothing(trace: Trace, mask: int, every: bool) -> None:
    gone = drop_some(trace, mask)
    with mock.patch.object(races, "FORGET", 1):
        forgetful = analyse(trace, gone, every)
    assert set(forgetful.races) == set(analyse(trace, gone, every).races)


def test_a_long_run_is_forgotten() -> None:
    """Each turn uses a buffer of its own, and the host waits for it."""
    def memories(forget: int) -> int:
        most = 0
        with mock.patch.object(races, "FORGET", forget):
            remembered = races.Finder.forget

            def forgetting(finder: races.Finder, floor: list[int]) -> None:
                nonlocal most
                most = max(most, len(finder.memories))
                remembered(finder, floor)
                most = max(most, len(finder.memories))

            with mock.patch.object(races.Finder, "forget", forgetting):
                assert analyse(pipeline(2000, fresh=True)).count > 500
        return most

    assert memories(100) < 60
    assert memories(1900) > 300


@settings(max_examples=100, deadline=None)
@given(TRACES, st.integers(0, 255))
def test_a_path_exists_where_there_is_an_order(trace: Trace, mask: int) -> None:
    gone = drop_some(trace, mask)
    expected = closure(trace, gone)
    steps = [s.index for s in trace.steps if not vanishes(s, gone)]
    for a, b in combinations(steps, 2):
        assert (path(trace, a, b, gone) is not None) is ((a, b) in expected)


@settings(max_examples=60, deadline=None)
@given(TRACES)
def test_predecessors_close_to_the_order(trace: Trace) -> None:
    direct = predecessors(trace)
    closed: list[set[int]] = []
    for found in direct:
        closed.append(set(found).union(*(closed[i] for i in found)))
    assert {(a, b) for b, found in enumerate(closed) for a in found} == closure(trace)


@settings(max_examples=60, deadline=None)
@given(TRACES)
def test_cuts_are_the_minimal_sets(trace: Trace) -> None:
    edges = range(len(trace.edges))
    removable = frozenset(edges)
    for conflict in analyse(trace).ordered[:4]:
        cutting = [frozenset(c) for size in (1, 2) for c in combinations(edges, size)
                   if (conflict.first, conflict.second) not in closure(trace, frozenset(c))]
        # Re-binding is not monotone: a larger set may restore an order, so compare minimal ones.
        minimal = {c for c in cutting if not any(other < c for other in cutting)}
        assert {cut.edges for cut in cuts(trace, conflict, removable, 2)} == minimal


# -- single rules

HOST, S, T = 0, 1, 2


class Builder:
    """Traces by hand: one memory, two streams."""

    def __init__(self) -> None:
        site = Site("f.py", 1, "f")
        self.trace = Trace(
            agents=[Agent(0, "host", True), Agent(1, "s", False), Agent(2, "t", False)],
            sites=[site], edges=[EdgeSite(str(i), site) for i in range(4)],
            allocations=[Allocation(i, 0, 0, 8, False, 0, S) for i in range(2)])

    def step(self, agent: int, kind: Kind, **fields: object) -> Builder:
        index = len(self.trace.steps)
        self.trace.steps.append(
            Step(index, agent, HOST, kind, "op", 0, str(index), **fields))  # type: ignore[arg-type]
        return self

    def touch(self, agent: int, how: str, lifetime: int = 0, low: int = 0, high: int = 8
              ) -> Builder:
        return self.step(agent, Kind.ACCESS, accesses=(
            Access(0, lifetime, Extent(low, high, high - low), "r" in how, "w" in how),))

    def publish(self, agent: int, key: str, *edges: int, allocation: int = -1) -> Builder:
        return self.step(agent, Kind.PUBLISH, key=key, edges=edges, allocation=allocation)

    def acquire(self, agent: int, key: str, *edges: int) -> Builder:
        return self.step(agent, Kind.ACQUIRE, key=key, edges=edges)

    def races(self, *gone: int) -> list[str]:
        return [race.hazard for race in analyse(self.trace, frozenset(gone)).races]


def test_a_wait_orders() -> None:
    b = Builder().touch(S, "w").publish(S, "e", 0).acquire(T, "e", 1).touch(T, "r")
    assert b.races() == []
    assert b.races(0) == b.races(1) == ["RAW"]


def test_a_suppressed_record_leaves_the_older_one() -> None:
    b = Builder().touch(S, "w").publish(S, "e", 0).publish(S, "e", 1).acquire(T, "e", 2)
    b.touch(T, "r")
    assert b.races(1) == b.races(0) == []
    assert b.races(0, 1) == ["RAW"]


def test_a_wait_before_the_record_is_nothing() -> None:
    b = Builder().acquire(T, "e", 1).touch(S, "w").publish(S, "e", 0).touch(T, "r")
    assert b.races() == ["RAW"]


def test_a_record_by_another_agent_hides_the_older_one() -> None:
    b = Builder().touch(S, "w").publish(S, "e", 0).publish(T, "e", 1).acquire(T, "e", 2)
    b.touch(T, "r")
    assert b.races() == ["RAW"]
    assert b.races(1) == []  # without the younger record the wait binds to the older


def test_a_step_of_two_edges_goes_only_with_both() -> None:
    b = Builder().touch(S, "w").publish(S, "e", 0, 1).acquire(T, "e").touch(T, "r")
    assert b.races(0) == b.races(1) == []
    assert b.races(0, 1) == ["RAW"]


def test_hazards_have_their_names() -> None:
    assert Builder().touch(S, "w").touch(T, "w").races() == ["WAW"]
    assert Builder().touch(S, "w").touch(T, "rw").races() == ["RAW"]
    assert Builder().touch(S, "r").touch(T, "w").races() == ["WAR"]
    assert Builder().touch(S, "r").touch(T, "r").races() == []
    assert Builder().touch(S, "w").touch(HOST, "r").races() == ["HOST-RAW"]
    assert Builder().touch(S, "r").touch(HOST, "w").races() == ["HOST-WAR"]
    assert Builder().touch(S, "w").touch(HOST, "w").races() == ["HOST-WAW"]
    assert Builder().touch(S, "r").touch(T, "w", lifetime=1).races() == ["UAF"]


def test_slices_of_one_memory_are_kept_apart() -> None:
    assert Builder().touch(S, "w", low=0, high=4).touch(T, "w", low=4, high=8).races() == []
    assert Builder().touch(S, "w", low=0, high=5).touch(T, "w", low=4, high=8).races() == ["WAW"]


def test_a_free_without_a_marker_is_latent() -> None:
    b = Builder().touch(T, "r").step(HOST, Kind.FREE, allocation=0)
    assert [(f.free, f.use) for f in latent_frees(b.trace)] == [(1, 0)]


def test_a_choice_matters_for_the_unsafe_frees_of_its_pool() -> None:
    """Lifetime 0 is marked and asked about, lifetime 1 of the other stream is freed too early."""
    b = Builder()
    b.trace.allocations[1] = b.trace.allocations[1]._replace(memory=1, stream=T)
    b.step(S, Kind.ACCESS, accesses=(Access(1, 1, Extent(0, 8, 8), True, False),))
    b.touch(T, "r").publish(T, "m", 0, allocation=0).step(HOST, Kind.FREE, allocation=0)
    b.step(HOST, Kind.FREE, allocation=1).step(HOST, Kind.CHOICE, key="m", allocation=0)
    assert reuse_matters(b.trace) == set()
    b.trace.one_pool = True
    assert reuse_matters(b.trace) == {(False, -1)}


def test_a_free_with_a_marker_is_safe_until_the_marker_is_dropped() -> None:
    b = Builder().touch(T, "r").publish(T, "m", 0, allocation=0)
    b.step(HOST, Kind.FREE, allocation=0)
    assert latent_frees(b.trace) == []
    assert len(latent_frees(b.trace, frozenset((0,)))) == 1
