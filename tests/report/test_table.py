from __future__ import annotations

import copy
import re
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from redgreen.report.table import render
from redgreen.report.text import WIDTH

TOKEN = "rg1." + "Ab0-" * 70


def edge(**changes: Any) -> dict[str, Any]:
    line = changes.get("line", 31)
    kind = changes.get("kind", "wait_event")
    base = {
        "id": f"pipeline.py:{line} {kind}", "kind": kind, "file": "/src/pipeline.py", "line": line,
        "function": "decode", "code": "main.wait_event(ready)", "instances": 4,
        "verdict": "load-bearing", "reason": "", "explored": 1, "guards": [], "covered_by": [],
        "masked_with": [], "witness": None,
    }  # fmt: skip
    return base | changes


PROOF: dict[str, Any] = {
    "schema": 1, "subject": "pipeline.py:decode", "device": "virtual",
    "green": {"verdict": "refuted", "scope": "recorded host order", "outcomes": 2, "schedules": 9,
              "conflicts": 41, "reference": "identical",
              "races": [{"hazard": "WAR", "memory": "pinned 256 B allocated at pipeline.py:12",
                         "changes_output": True, "witness": TOKEN,
                         "first": {"file": "/src/pipeline.py", "line": 20, "op": "copy_",
                                   "stream": "stream 1"},
                         "second": {"file": "/src/pipeline.py", "line": 24, "op": "fill_",
                                    "stream": "host"}}]},
    "edges": [
        edge(witness=TOKEN[:60],
             guards=["RAW pipeline.py:20 copy_ (stream 1) -> pipeline.py:32 mul (stream 0), device"
                     " 256 B allocated at pipeline.py:14"]),
        edge(line=40, kind="record", verdict="masked", reason="alone it changes nothing",
             masked_with=[["pipeline.py:41 wait_stream"], ["a", "b"]]),
        edge(line=50, kind="event.synchronize", verdict="redundant",
             reason="its conflicts are ordered without it",
             covered_by=["pipeline.py:31 wait_event"]),
    ],
    "diagnostics": [{"kind": "wait-on-unrecorded-event", "file": "/src/pipeline.py", "line": 9,
                     "message": "this event was never recorded"}],
}  # fmt: skip

EXPECTED = """\
subject    pipeline.py:decode
device     virtual
green      refuted: 2 outcomes in 9 schedules, 41 conflicts between agents
scope      recorded host order
reference  identical

EDGES  3 sites: 1 load-bearing, 1 masked, 1 redundant

load-bearing  pipeline.py:31 wait_event, 4 times, witness W1
    31 | main.wait_event(ready)
    guards RAW pipeline.py:20 copy_ (stream 1) -> pipeline.py:32 mul (stream 0), device 256 B
      allocated at pipeline.py:14

masked        pipeline.py:40 record, 4 times
    40 | main.wait_event(ready)
    alone it changes nothing
    masked with pipeline.py:41 wait_stream
    masked with a + b

redundant     pipeline.py:50 event.synchronize, 4 times
    50 | main.wait_event(ready)
    its conflicts are ordered without it
    covered by pipeline.py:31 wait_event

Redundant holds for the program, input and host order that ran, not for others.
The program is refuted. Mend that first: the right one may need them.

RACES  1 in the program as written

WAR       pinned 256 B allocated at pipeline.py:12: changes the output, witness W2
    first  /src/pipeline.py:20 copy_ on stream 1
    second /src/pipeline.py:24 fill_ on host

DIAGNOSTICS  1

/src/pipeline.py:9: wait-on-unrecorded-event: this event was never recorded

WITNESSES
Run one again: redgreen replay TOKEN pipeline.py:decode

W1  pipeline.py:31 wait_event
"""


def test_the_whole_report() -> None:
    assert render(PROOF)[: len(EXPECTED)] == EXPECTED


def test_every_token_can_be_pasted_as_it_stands() -> None:
    text = render(PROOF)
    joined = text.replace("\\\n", "")
    assert f"\n{TOKEN}\n" in joined
    assert f"\n{TOKEN[:60]}\n" in joined


def test_colour_changes_nothing_but_colour() -> None:
    coloured = render(PROOF, colour=True)
    assert "\x1b[31mrefuted\x1b[0m" in coloured
    assert "\x1b[32mload-bearing\x1b[0m" in coloured
    assert re.sub(r"\x1b\[\d+m", "", coloured) == render(PROOF)
    assert "\x1b" not in render(PROOF)


def test_a_program_without_edges_and_a_different_reference() -> None:
    proof = copy.deepcopy(PROOF)
    proof["edges"] = proof["diagnostics"] = []
    proof["green"] |= {"races": [], "verdict": "proved", "reference": "different", "outcomes": 1}
    text = render(proof)
    assert "EDGES  none: the program made no sync call that can be taken out" in text
    assert "reference  different: every schedule may agree and be wrong" in text
    assert "green      proved: 1 outcome in 9 schedules" in text
    assert "RACES" not in text and "WITNESSES" not in text and "DIAGNOSTICS" not in text
    proof["green"]["reference"] = None
    assert "reference  none given" in render(proof)


def test_stacks_keep_their_lines() -> None:
    proof = copy.deepcopy(PROOF)
    message = "timeout: no result after 1 s\nThread 1:\n  File \"a.py\", line 3 in f"
    proof["diagnostics"] = [{"kind": "inconclusive", "file": "", "line": 0, "message": message}]
    assert "\ninconclusive: timeout: no result after 1 s\n  Thread 1:\n    File" in render(proof)


words = st.text(max_size=150)
accesses = st.fixed_dictionaries(
    {"file": words, "line": st.integers(0, 10**6), "op": words, "stream": words}
)
races = st.fixed_dictionaries(
    {"hazard": st.sampled_from(["RAW", "HOST-WAR"]), "memory": words, "first": accesses,
     "second": accesses, "changes_output": st.booleans(), "witness": st.none() | st.just(TOKEN)}
)  # fmt: skip
edges = st.fixed_dictionaries(
    {"id": words, "kind": words, "file": words, "line": st.integers(0, 10**6), "function": words,
     "code": words, "instances": st.integers(0, 10**6), "explored": st.integers(0, 99),
     "verdict": st.sampled_from(["load-bearing", "masked", "redundant", "unexercised"]),
     "reason": words, "guards": st.lists(words, max_size=2), "witness": st.none() | st.just(TOKEN),
     "covered_by": st.lists(words, max_size=2),
     "masked_with": st.lists(st.lists(words, max_size=2), max_size=2)}
)  # fmt: skip
notes = st.fixed_dictionaries(
    {"kind": words, "file": words, "line": st.integers(0, 10**6), "message": words}
)


@settings(max_examples=50)
@given(words, st.lists(races, max_size=2), st.lists(edges, max_size=2), st.lists(notes, max_size=2))
def test_nothing_is_wider_than_the_page_or_unprintable(
    subject: str, some_races: Any, some_edges: Any, some_notes: Any
) -> None:
    proof = copy.deepcopy(PROOF) | {"subject": subject, "diagnostics": some_notes}
    proof["green"]["races"], proof["edges"] = some_races, some_edges
    for line in render(proof).split("\n"):
        assert len(line) <= WIDTH, line
        assert line.isprintable(), line
