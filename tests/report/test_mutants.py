from __future__ import annotations

from typing import Any

from redgreen.report.table import render
from tests.report.test_table import PROOF, TOKEN


def mutant(**changes: Any) -> dict[str, Any]:
    base = {
        "id": f"pipeline.py:31 record [{changes.get('operator', 'early')}]", "operator": "early",
        "kind": "record", "file": "/src/pipeline.py", "line": 31, "function": "decode",
        "code": "ready.record(side)", "instances": 4, "verdict": "killed", "reason": "",
        "explored": 2, "lost": ["RAW a.py:1 copy_ (stream 1) -> a.py:2 mul (stream 0)"],
        "witness": TOKEN,
    }  # fmt: skip
    return base | changes


def test_verdicts_and_score() -> None:
    mutants = [
        mutant(),
        mutant(operator="late", verdict="survived", lost=[], witness=None, reason="no order lost"),
        mutant(operator="free", verdict="unexercised", lost=[], witness=None, instances=0,
               reason="it changes nothing"),
        mutant(operator="stream", verdict="killed"),
    ]  # fmt: skip
    text = render(PROOF | {"mutants": mutants}, parts=("mutants", "witnesses"))
    head, _, rest = text.partition("\n\nWITNESSES")
    assert head == """\
MUTANTS  4: 1 survived, 2 killed, 1 unexercised
score    2 of 3, 67 %

survived      pipeline.py:31 record [late], 4 times
    31 | ready.record(side)
    the wait could come one step later
    no order lost

killed        pipeline.py:31 record [early], 4 times, witness W1
    31 | ready.record(side)
    loses RAW a.py:1 copy_ (stream 1) -> a.py:2 mul (stream 0)

killed        pipeline.py:31 record [stream], 4 times, witness W1
    31 | ready.record(side)
    loses RAW a.py:1 copy_ (stream 1) -> a.py:2 mul (stream 0)

unexercised   pipeline.py:31 record [free]
    31 | ready.record(side)
    it changes nothing

Survived holds for the program, input and host order that ran."""
    assert "W1  pipeline.py:31 record [early]; pipeline.py:31 record [stream]" in rest


def test_none_asked_for_and_none_found() -> None:
    assert "MUTANTS" not in render(PROOF)
    text = render(PROOF | {"mutants": []}, parts=("mutants",))
    assert text == "MUTANTS  none: the program has no place for those that were asked for\n"


def test_nothing_judged_is_no_score() -> None:
    only = [mutant(verdict="unexercised", witness=None)]
    assert "score    none" in render(PROOF | {"mutants": only})
