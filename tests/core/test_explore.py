"""The search finds exactly the outcomes that brute force finds, and the edges follow."""

from __future__ import annotations

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from redgreen.explore import Search
from redgreen.faults import Fault
from redgreen.judge import Base, judge
from redgreen.schedule import SERIAL

from .programs import STATEMENTS, Program, Statement, all_outcomes
from .toy import ToyRunner

EXAMPLES = 12
PROGRAMS = st.lists(STATEMENTS, min_size=3, max_size=6)


def explored(program: Program) -> Base:
    runner = ToyRunner(program)
    serial = runner.run(SERIAL)
    search = Search(runner, frozenset(), 400, 10_000)
    search.add(serial)
    search.exhaust(serial)
    base = Base(runner, serial, search, 400, 10_000)
    base.analyse()
    return base


@settings(max_examples=EXAMPLES, deadline=None)
@given(PROGRAMS)
def test_outcomes_are_those_of_brute_force(statements: list[Statement]) -> None:
    program = Program(statements)
    expected = all_outcomes(program)
    assume(expected is not None)
    base = explored(program)
    assert base.search.complete, base.search.gap
    assert set(base.search.outcomes) == expected


@settings(max_examples=EXAMPLES, deadline=None)
@given(PROGRAMS)
def test_an_edge_is_judged_as_by_brute_force(statements: list[Statement]) -> None:
    program = Program(statements)
    expected = all_outcomes(program)
    base = explored(program)
    edges = [e for e in dict.fromkeys(
        e for _, run in base.variants() for e in run.trace.edges) if e.kind != "copy"]
    assume(expected is not None and edges)
    for edge in edges:
        without = all_outcomes(program, frozenset((Fault("drop", edge),)))
        if without is not None:
            assert judge(base, frozenset((edge,))).changed is (without != expected), edge
