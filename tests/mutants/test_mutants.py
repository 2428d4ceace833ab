"""Each operator kills where the program depends on what it takes away, and nowhere else."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

import redgreen
from redgreen.api import make_runner
from redgreen.moves import early, late, redirected
from redgreen.mutants import OPERATORS, candidates
from redgreen.races import all_races
from redgreen.replay import replay
from redgreen.schedule import SERIAL
from redgreen.subject import Call
from redgreen.token import decode
from redgreen.trace import Trace
from tests.corpus.expect import EXPECTATIONS, Expect

from . import programs

FILE = Path(programs.__file__).name
_MARK = re.compile(rf"\b({'|'.join(OPERATORS)}): (\w+)")
NAMES = [name for name, value in vars(programs).items()
         if inspect.isfunction(value) and value.__module__ == programs.__name__]  # fmt: skip


def marks(name: str) -> dict[tuple[int, str], str]:
    """(line, operator) -> verdict."""
    lines, start = inspect.getsourcelines(getattr(programs, name))
    return {
        (start + i, operator): verdict
        for i, line in enumerate(lines) if "# " in line
        for operator, verdict in _MARK.findall(line.rpartition("# ")[2])
    }  # fmt: skip


@cache
def document(name: str) -> dict[str, Any]:
    expected = marks(name)
    rings = [f"{FILE}:{line}" for line, operator in expected if operator == "collapse"]
    operators = {operator for _, operator in expected}
    return redgreen.prove(getattr(programs, name), mutants=operators, rings=rings).to_dict()


@pytest.mark.parametrize("name", NAMES)
def test_verdicts(name: str) -> None:
    proof, expected = document(name), marks(name)
    assert expected and proof["green"]["verdict"] == "proved"
    got = {(m["line"], m["operator"]): m["verdict"] for m in proof["mutants"]}
    about = name.partition("_")[0]  # all calls are marked for it, of memory what matters
    calls = {about} & {"early", "late", "stream"}
    got = {key: verdict for key, verdict in got.items() if key in expected or key[1] in calls}
    assert got == expected, proof["mutants"]
    _killed_ones_have_a_witness_that_replays(name)


def _killed_ones_have_a_witness_that_replays(name: str) -> None:
    subject = Call(getattr(programs, name), ())
    for mutant in document(name)["mutants"]:
        assert (mutant["witness"] is not None) == (mutant["verdict"] == "killed"), mutant
        assert mutant["reason"] or mutant["verdict"] == "killed"
        assert mutant["id"] == f"{FILE}:{mutant['line']} {mutant['kind']} [{mutant['operator']}]"
        if mutant["witness"]:
            token = decode(mutant["witness"])
            assert [fault.action for fault in token.faults] == [mutant["operator"]]
            found = replay(token, subject, make_runner(subject, "virtual", "native", 60.0))
            assert found.reproduced and found.run.outcome != found.base


def test_the_right_witness() -> None:
    """What goes wrong is what the operator is about."""
    def lost(name: str) -> str:
        killed = [m for m in document(name)["mutants"] if m["verdict"] == "killed"]
        return killed[-1]["lost"][0]

    assert lost("early_killed").startswith("RAW programs.py:")
    assert "HOST-RAW" in lost("late_killed") and "tolist" in lost("late_killed")
    assert lost("stream_of_a_storage").startswith("UAF")
    assert lost("free_killed").startswith("UAF")
    assert lost("collapse_killed").startswith("HOST-")
    (refused,) = document("unpin_killed")["mutants"]
    assert refused["reason"].startswith("raised: ") and "during capture" in refused["reason"]


def test_what_survives_only_because_nobody_allocates_is_said() -> None:
    def reason(name: str) -> str:
        ((line, _),) = marks(name)
        return next(str(m["reason"]) for m in document(name)["mutants"] if m["line"] == line)

    assert "whoever did would race" in reason("free_latent")
    assert "race" not in reason("free_survived")


def test_a_mutant_that_changes_nothing_is_no_pass() -> None:
    for name in ("early_nothing", "late_nothing", "collapse_nothing"):
        (mutant,) = document(name)["mutants"]
        assert mutant["verdict"] == "unexercised"
        assert mutant["reason"].startswith("it changes nothing: ")


def test_a_ring_that_is_not_there() -> None:
    proof = redgreen.prove(programs.collapse_nothing, rings=["programs.py:1", f"{FILE}:2"])
    assert [(m.verdict, m.operator, m.line) for m in proof.mutants or ()] == [
        ("unexercised", "collapse", 1), ("unexercised", "collapse", 2)]  # fmt: skip
    assert proof.mutants and "nothing was allocated there" in proof.mutants[0].reason


def test_without_being_asked_for_there_are_none() -> None:
    proof = redgreen.prove(programs.unpin_survived)
    assert proof.mutants is None and "mutants" not in proof.to_dict()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mutants": "earlier"}, "no mutant 'earlier'; there are early, late, stream"),
        ({"mutants": ("early", "x")}, "no mutant 'x'"),
        ({"mutants": "collapse"}, "--ring FILE:LINE"),
        ({"rings": ["a.py"]}, "ring 'a.py': name the line"),
        ({"rings": ["a.py:x"]}, "ring 'a.py:x'"),
    ],
)
def test_bad_input(options: dict[str, Any], message: str) -> None:
    with pytest.raises(redgreen.UsageError, match=re.escape(message)):
        redgreen.prove(programs.unpin_survived, **options)


# -- the moved trace is the trace of the mutated program -------------------------------------------

MOVES: dict[str, Callable[..., Trace]] = {"early": early, "late": late, "stream": redirected}
MOVED = [name for name in NAMES if name.partition("_")[0] in MOVES and "storage" not in name]


def _races(trace: Trace) -> set[tuple[str, str, str]]:
    return {(trace.steps[r.first].label, trace.steps[r.second].label, r.hazard)
            for r in all_races(trace).races}  # fmt: skip


def disagreements(function: Callable[..., object], arguments: tuple[object, ...],
                  *operators: Any) -> list[str]:
    """Calls of which the moved trace and the mutated run race otherwise."""
    runner = make_runner(Call(function, arguments), "virtual", "native", 60.0)
    base = runner.run(SERIAL)
    found = []
    for fault in candidates([base.trace], operators, ()):
        if fault.edge.kind != "record_stream":  # makes no step of its own
            run = runner.run(SERIAL, frozenset({fault}))
            moved = MOVES[fault.action](base.trace, fault.edge)
            if run.outcome.status == "returned" and _races(moved) != _races(run.trace):
                found.append(f"{fault.edge.site.line} {fault.edge.kind} {fault.action}")
    return found


@pytest.mark.parametrize("name", MOVED)
def test_what_is_foretold_happens(name: str) -> None:
    """The races of the trace in which the call was moved are those of the run in which it was."""
    assert disagreements(getattr(programs, name), (), name.partition("_")[0]) == []


@pytest.mark.slow
@pytest.mark.parametrize("expect", EXPECTATIONS[::4], ids=lambda expect: expect.name)
def test_what_is_foretold_happens_in_the_corpus(expect: Expect) -> None:
    assert disagreements(expect.function, expect.args, *MOVES) == []


# -- a program that is wrong itself ----------------------------------------------------------------


def _torn_ring() -> list[float]:
    """Nobody waits for the last copy: the mutants are compared with all that may come of that."""
    side, host = torch.cuda.Stream(), torch.zeros(2, pin_memory=True)
    a = torch.ones(2, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        host.copy_(a, non_blocking=True)
    return host.tolist()


def test_outcomes_that_the_program_has_already_kill_nothing() -> None:
    proof = redgreen.prove(_torn_ring, mutants="all")
    assert proof.green.verdict == "refuted" and proof.mutants
    found = {mutant.operator: mutant.verdict for mutant in proof.mutants}
    assert found == {"early": "killed", "late": "killed", "stream": "killed", "free": "survived",
                     "unpin": "survived"}  # fmt: skip
    (unpinned,) = [mutant for mutant in proof.mutants if mutant.operator == "unpin"]
    assert unpinned.reason == "no outcome is new; 1 of the base outcomes can no longer occur"
