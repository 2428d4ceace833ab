"""The table after a run, made on the controller from what the reports carry."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import pytest

from ..report.text import clean, count, wrapped


@dataclass(frozen=True, slots=True)
class Row:
    """What one item found out."""

    subject: str
    claim: str
    verdict: str
    note: str
    passed: bool
    cached: bool


def rows(stats: Mapping[str, Iterable[object]]) -> Iterator[Row]:
    """From the reports of all outcomes (passed, failed, xfailed, ...)."""
    for reports in stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                found = _properties(report)
                if "claim" in found:
                    yield Row(found["subject"], found["claim"], found["verdict"],
                              found.get("note", ""), report.passed,
                              found.get("recording") == "cached")


def table(found: Iterable[Row]) -> list[str]:
    """Subjects by name, GREEN first, then the edges by line."""
    lines: list[str] = []
    subject = None
    ordered = sorted(found, key=_place)
    for row in ordered:
        if row.subject != subject:
            subject = row.subject
            cached = " (edges from the cached recording)" if row.cached else ""
            lines += wrapped("", f"{subject}{cached}", 0)
        lines += _line(row)
    return [*lines, _total(ordered)] if ordered else []


def _place(row: Row) -> tuple[object, ...]:
    numbered = re.split(r"(\d+)", row.claim)  # text and numbers by turns
    numbered[1::2] = [number.zfill(9) for number in numbered[1::2]]
    return row.subject, row.claim != "green", numbered


def replays(stats: Mapping[str, Iterable[object]]) -> Iterator[str]:
    """What the replayed runs did."""
    for reports in stats.values():
        for report in reports:
            if isinstance(report, pytest.TestReport) and report.when == "call":
                found = _properties(report)
                if "replay" in found:
                    yield f"{found['subject']}\n{found['replay']}"


def _properties(report: pytest.TestReport) -> dict[str, str]:
    return {name.removeprefix("redgreen_"): str(value) for name, value in report.user_properties
            if name.startswith("redgreen_")}


def _line(row: Row) -> list[str]:
    mark = "ok  " if row.passed else "FAIL"
    head = f"{mark}  {row.verdict:<13} "
    note = re.sub(r": witness rg\S+", "", clean(row.note))  # the failure has it
    return wrapped(head, f"{row.claim}{f' ({note})' if note else ''}", 2)


def _total(found: list[Row]) -> str:
    edges = [row for row in found if row.claim != "green"]
    greens = [row for row in found if row.claim == "green"]
    tally: dict[str, int] = {}
    for row in edges:
        tally[row.verdict] = tally.get(row.verdict, 0) + 1
    parts = ", ".join(f"{number} {verdict}" for verdict, number in sorted(tally.items()))
    proved = sum(row.verdict == "proved" for row in greens)
    judged = [f"{count(len(greens), 'subject')} judged, {proved} proved"] if greens else []
    return "; ".join([*judged, f"{count(len(edges), 'edge')}{f': {parts}' if parts else ''}"])
