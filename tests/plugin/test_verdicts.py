"""When an item passes, and what a failing one says."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from redgreen.pytesting.decision import Claim, Green, Red, decide
from redgreen.pytesting.work import Answer
from tests.plugin.conftest import EDGES, TWICE, outcome

EDGE = {"id": "e", "verdict": "load-bearing", "reason": "", "witness": "rg1.x", "covered_by": [],
        "masked_with": []}  # fmt: skip
GREEN = {"verdict": "proved", "reference": None, "outcomes": 1, "races": []}


def proof(
    green: Mapping[str, Any] = {}, edge: Mapping[str, Any] = {}, notes: Any = ()
) -> Answer:
    return Answer(result={"green": GREEN | green, "edges": [EDGE | edge], "diagnostics": notes})


NOTE = {"kind": "vacuous", "message": "no device work was enqueued"}
MASK = {"verdict": "masked", "masked_with": [["f", "g"], ["h"]]}


@pytest.mark.parametrize(
    ("claim", "answer", "objection"),
    [
        (Green(), proof(), ""),
        (Green(reference=True), proof({"reference": "identical"}), ""),
        (Green(reference=True), proof({"reference": "different"}), "differs from the reference"),
        (Green(reference=True), proof(), "differs from the reference"),
        (Green(), proof({"verdict": "refuted"}), "refuted"),
        (Green(), proof({"verdict": "inconclusive"}), "inconclusive: no reason given"),
        (Green(), proof({"verdict": "inconclusive"}, notes=[NOTE]), "vacuous: no device work"),
        (Green(listed=["e"]), proof(edge={"verdict": "redundant"}), ""),
        (Green(listed=[]), proof(), ""),
        (Green(listed=[]), proof(edge={"verdict": "redundant", "reason": "why"}),
         "e, which has no item of its own: not load-bearing: why"),
        (Green(listed=[], redundant={"e": "so"}), proof(edge={"verdict": "redundant"}), ""),
        (Red("e"), proof(), ""),
        (Red("e"), proof(edge={"verdict": "redundant", "covered_by": ["f", "g"]}),
         "not load-bearing: covered by f, g"),
        (Red("e"), proof(edge={"verdict": "redundant", "reason": "it ordered no conflict"}),
         "not load-bearing: it ordered no conflict"),
        (Red("e"), proof(edge=MASK), "not load-bearing: masked with f + g or with h"),
        (Red("e"), proof(edge={"verdict": "unexercised", "reason": "the fault was not reached"}),
         "not shown to be load-bearing: unexercised: the fault was not reached"),
        (Red("e"), proof(edge={"verdict": "inconclusive", "reason": "a bound\nmore"}),
         "not shown to be load-bearing: inconclusive: a bound"),
        (Red("e", "so"), proof(edge={"verdict": "redundant"}), ""),
        (Red("e", "so"), proof(edge=MASK), ""),
        (Red("e", "so"), proof(), "declared redundant, but load-bearing: witness rg1.x"),
        (Red("e", "so"), proof(edge={"verdict": "inconclusive"}), "not shown"),
        (Red("e", "so"), proof(edge={"verdict": "unexercised"}), "not shown"),
        (Red("z"), proof(), "z was recorded, but not reached"),
        (Red("z", "so", recorded=False), proof(), "there is no such edge: z"),
        (Red("e"), proof(edge={"verdict": "something new"}), "something new"),
        (Green(), proof({"verdict": "something new"}), "something new"),
        *((claim, Answer(kind, "the text"), word)
          for claim in (Green(), Red("e"), Red("e", "so"))
          for kind, word in (("raised", "fails with every edge in place"), ("usage", "the text"),
                             ("internal", "error in redgreen"), ("skipped", "the text"))),
    ],
)  # fmt: skip
def test_one_function_decides(claim: Claim, answer: Answer, objection: str) -> None:
    found = decide(claim, answer).objection
    assert objection in found
    assert bool(objection) == bool(found) and "\n" not in found


SUBJECTS = f"""
import pipeline, pytest, time, torch

@pytest.mark.redgreen
def test_racy():
    return pipeline.racy()

@pytest.mark.redgreen
def test_twice():
    return pipeline.twice()

@pytest.mark.redgreen(redundant={{{TWICE!r}: "the caller reads at once"}})
def test_declared():
    return pipeline.twice()

@pytest.mark.redgreen(redundant={{{EDGES[1]!r}: "so I thought", "pipeline.py:99 record": "gone"}})
def test_wrongly_declared():
    return pipeline.joined()

@pytest.mark.redgreen(reference=pipeline.plain)
def test_reference():
    return pipeline.joined()

@pytest.mark.redgreen(reference=pipeline.wrong)
def test_other_reference():
    return pipeline.joined()

@pytest.mark.redgreen
def test_vacuous():
    return 3

@pytest.mark.redgreen
def test_clock():
    return pipeline.joined() + time.perf_counter()

@pytest.mark.redgreen
def test_raises():
    pipeline.joined()
    raise ValueError("in the subject")

@pytest.mark.redgreen(timeout=1)
def test_hangs():
    while True: pass
"""


def test_what_passes_and_what_failing_items_say(project: pytest.Pytester) -> None:
    project.makepyfile(test_a=SUBJECTS)
    result = project.runpytest("-rA", "-q", "-W", "ignore::pytest.PytestAssertRewriteWarning")
    found = {name.removeprefix("test_a.py::test_"): word for name, word in outcome(result).items()}
    failed = {name for name, word in found.items() if word == "FAILED"}
    assert failed == {
        "racy[green]", f"twice[red:{TWICE}]", f"wrongly_declared[red:{EDGES[1]}]",
        "wrongly_declared[red:pipeline.py:99 record]", "other_reference[green]", "vacuous[green]",
        "clock[green]", *(f"clock[red:{edge}]" for edge in EDGES), "raises[green]", "hangs[green]",
    }  # fmt: skip
    assert {f"declared[red:{TWICE}]", "declared[green]", "reference[green]"} <= set(found)
    text = result.stdout.str()
    for line in (
        "RAW       device",  # the races as in the report
        "Run one again: pytest test_a.py --redgreen-replay TOKEN",
        "not load-bearing: ",
        "declared redundant, but load-bearing: witness rg1.",
        "declared redundant, but there is no such edge: pipeline.py:99 record",
        "the output differs from the reference's",
        "vacuous: no device work was enqueued",
        "two serial runs",
        "the program fails with every edge in place: ValueError: in the subject",
        "the program fails with every edge in place: no result after 1 s",
    ):
        assert line in text, line
    assert "redgreen/" not in text.split("ValueError: in the subject")[0].rsplit("Traceback")[-1]
    python = ("witness rg1.", '  File "')  # a token for the command line; tracebacks
    long = [line for line in result.outlines if len(line) > 100]
    assert not [line for line in long if not any(word in line for word in python)]
