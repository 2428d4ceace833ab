"""The corpus of public synchronization bugs: what is proved, what is refuted, by which lines."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import redgreen

from . import extra_benign_race
from .expect import EXPECTATIONS, VERDICTS, Expect, read_marks

HERE = Path(__file__).parent
PROGRAMS = sorted([*HERE.glob("b*_*.py"), *HERE.glob("extra_*.py")])
SYNC_CALLS = frozenset(
    {"wait_event", "wait_stream", "record", "record_event", "record_stream", "synchronize"}
)
# Of these kinds a right program has exactly those that its source announces.
EXACT = frozenset(
    {
        "wait-on-unrecorded-event",
        "record-stream-on-allocating-stream",
        "event-rearmed",
        "event-without-waiter",
        "latent-use-after-free",
        "host-order",
    }
)
# Also whose call comes first is open, and a wait does not fix that.
NO_WAIT_MENDS = frozenset({"late_sleep_is_refuted", "late_nobody_told_is_refuted"})
HAZARDS = frozenset({"RAW", "WAR", "WAW", "UAF", "HOST-RAW", "HOST-WAR", "HOST-WAW"})


def _params() -> Iterator[Any]:
    """Of each program the first right and the first wrong variant; the others are slow."""
    seen: set[tuple[str, str]] = set()
    for expect in EXPECTATIONS:
        kind = expect.subject.partition(":")[0], expect.green
        marks = [pytest.mark.slow] if kind in seen else []
        seen.add(kind)
        yield pytest.param(expect, id=expect.name, marks=marks)


@pytest.mark.parametrize("expect", list(_params()))
def test_corpus(expect: Expect) -> None:
    proof = redgreen.prove(
        expect.function, *expect.args, reference=expect.reference_function
    ).to_dict()
    wrong = [
        *_green(expect, proof),
        *_races(expect, proof),
        *_edges(expect, proof),
        *_masking(expect, proof),
        *_diagnostics(expect, proof),
        *_missing(expect, proof),
    ]
    assert not wrong, "\n".join(wrong)


def _green(expect: Expect, proof: Mapping[str, Any]) -> Iterator[str]:
    green = proof["green"]
    if green["verdict"] != expect.green:
        yield f"green: expected {expect.green}, got {green['verdict']}: {green}"
    if green["reference"] != expect.reference:
        yield f"reference: expected {expect.reference}, got {green['reference']}"
    if proof["schema"] != 1 or proof["device"] != "virtual":
        yield f"schema {proof['schema']}, device {proof['device']}"


def _races(expect: Expect, proof: Mapping[str, Any]) -> Iterator[str]:
    races = proof["green"]["races"]
    for race in races:
        if race["hazard"] not in HAZARDS:
            yield f"unknown hazard: {race}"
        if race["changes_output"] and not race["witness"]:
            yield f"no witness: {_show(race)}"
        if expect.green == "proved" and (race["changes_output"] or not expect.benign):
            yield f"unexpected race: {_show(race)}"
    for wanted in expect.races:
        hazards = wanted.hazard.split("/")
        first, second = (expect.lines(kind, wanted.name) for kind in ("first", "second"))
        assert first and second, f"{expect.name}: no lines for {wanted}"
        buffers = expect.lines("buffer", wanted.name)
        if not any(
            race["hazard"] in hazards
            and race["changes_output"]
            and _at(expect, race["first"], first)
            and _at(expect, race["second"], second)
            and (not buffers or _names(expect, race["memory"], buffers))
            for race in races
        ):
            yield (
                f"no {wanted.hazard} race of {sorted(first)} and {sorted(second)} on memory of "
                f"{sorted(buffers)}; listed: {[_show(race) for race in races]}"
            )
    buffers = {mark.line for mark in expect.marks("buffer")}
    for race in races:
        if buffers and race["changes_output"] and not _names(expect, race["memory"], buffers):
            yield f"race on another buffer: {_show(race)}"


def _edges(expect: Expect, proof: Mapping[str, Any]) -> Iterator[str]:
    expected = {mark.line: expect.edges.get(mark.name, mark.value) for mark in expect.marks("edge")}
    seen: dict[int, str] = {}
    for edge in proof["edges"]:
        if Path(edge["file"]) != expect.path:
            yield f"edge in another file: {edge['id']} {edge['file']}"
            continue
        if edge["line"] in seen:
            yield f"two edges on one line: {edge['id']}"
        seen[edge["line"]] = edge["verdict"]
        if edge["verdict"] not in VERDICTS:
            yield f"{edge['id']}: unknown verdict {edge['verdict']}"
        if edge["verdict"] == "load-bearing" and not edge["witness"]:
            yield f"{edge['id']}: load-bearing without a witness"
        if edge["instances"] < 1:
            yield f"{edge['id']}: {edge['instances']} instances"
        if edge["line"] not in expected:
            yield f"{edge['id']}: not marked as an edge"
    for line, verdict in expected.items():
        got = seen.get(line, "absent")
        if verdict not in ("any", got):
            why = next((e["reason"] for e in proof["edges"] if e["line"] == line), "")
            yield f"edge at {line}: expected {verdict}, got {got} ({why})"
    named = _names_by_id(expect, proof)
    for edge in proof["edges"]:
        name = named.get(edge["id"], "")
        if name in expect.instances and edge["instances"] != expect.instances[name]:
            yield f"{edge['id']}: {edge['instances']} instances, not {expect.instances[name]}"


def _masking(expect: Expect, proof: Mapping[str, Any]) -> Iterator[str]:
    named = _names_by_id(expect, proof)
    for edge in proof["edges"]:
        name = named.get(edge["id"], edge["id"])
        expected = {names for names in expect.masking if name in names}
        got = {
            frozenset(named.get(other, other) for other in (*others, edge["id"]))
            for others in edge["masked_with"]
        }
        if got != expected:
            yield f"{edge['id']}: masking sets {_sorted(got)}, expected {_sorted(expected)}"


def _missing(expect: Expect, proof: Mapping[str, Any]) -> Iterator[str]:
    """Every race of the corpus is mended by waits, and where it has one race by one at its end."""
    found = [d["line"] for d in proof["diagnostics"] if d["kind"] == "missing-edge"]
    if not (expect.green == "refuted" and expect.races):
        if found:
            yield f"missing-edge at {found}"
    elif not found and expect.name not in NO_WAIT_MENDS:
        yield "no missing-edge"
    elif len(found) == len(proof["green"]["races"]) == 1:
        ends = {line for race in expect.races for line in expect.lines("second", race.name)}
        if not ends & set(found):
            yield f"missing-edge at {found}, expected one of {sorted(ends)}"


def _diagnostics(expect: Expect, proof: Mapping[str, Any]) -> Iterator[str]:
    expected: dict[str, set[int]] = {}
    for mark in expect.marks("diag"):
        expected.setdefault(mark.value, set()).add(mark.line)
    got: dict[str, set[int]] = {}
    for diagnostic in proof["diagnostics"]:
        inside = Path(diagnostic["file"]) == expect.path
        got.setdefault(diagnostic["kind"], set()).add(diagnostic["line"] if inside else 0)
    for kind, lines in expected.items():
        if not got.get(kind, set()) & lines:
            yield f"no {kind} at {sorted(lines)}: {proof['diagnostics']}"
    if expect.green == "proved":
        for kind in EXACT:
            if extra := got.get(kind, set()) - expected.get(kind, set()):
                yield f"unexpected {kind} at {sorted(extra)}: {proof['diagnostics']}"
    for kind in expect.without:
        if kind in got:
            yield f"unexpected {kind} at {sorted(got[kind])}"


def _names_by_id(expect: Expect, proof: Mapping[str, Any]) -> dict[str, str]:
    names = {mark.line: mark.name for mark in expect.marks("edge")}
    return {
        edge["id"]: names[edge["line"]]
        for edge in proof["edges"]
        if Path(edge["file"]) == expect.path and names.get(edge["line"])
    }


def _at(expect: Expect, access: Mapping[str, Any], lines: set[int]) -> bool:
    return Path(access["file"]) == expect.path and access["line"] in lines


def _names(expect: Expect, memory: str, lines: set[int]) -> bool:
    return any(memory.endswith(f"{expect.path.name}:{line}") for line in lines)


def _show(race: Mapping[str, Any]) -> str:
    first, second = race["first"], race["second"]
    return (
        f"{race['hazard']} {first['line']} {first['op']} -> {second['line']} {second['op']}, "
        f"{race['memory']}, changes output: {race['changes_output']}"
    )


def _sorted(sets: set[frozenset[str]]) -> list[list[str]]:
    return sorted(sorted(names) for names in sets)


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_every_sync_call_has_a_verdict(path: Path) -> None:
    """Each sync call of a program is marked, and each mark of an edge is on a sync call."""
    calls = {
        node.end_lineno
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in SYNC_CALLS
    }
    marks = [mark for mark in read_marks(path) if mark.kind == "edge"]
    assert {mark.line for mark in marks} == calls
    assert all(mark.value in VERDICTS | {"any", "absent"} for mark in marks)


def test_every_program_is_expected() -> None:
    programs = {
        f"{path.stem}:{node.name}"
        for path in PROGRAMS
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef) and not node.name.startswith(("right", "_"))
    }
    assert programs == {expect.subject for expect in EXPECTATIONS}
    assert len({expect.name for expect in EXPECTATIONS}) == len(EXPECTATIONS)


def test_a_benign_race_says_how_much_was_explored() -> None:
    """A dead row is read too early or not: two classes."""
    proof = redgreen.prove(extra_benign_race.dead_row)
    said = [d.message for d in proof.diagnostics if d.kind == "explored"]
    assert len(said) == 1 and "each of the 2 classes" in said[0]
