"""Projects of their own, in which pytest runs with the plugin."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch  # noqa: F401 - pytester forgets modules that are first imported in its runs

from redgreen import api, jsonfile, plugin, replay  # noqa: F401
from redgreen.pytesting import documents, items, prover, summary  # noqa: F401 - one prover for all

ENGINE = """\
import torch


def joined(n=4, keep=True):
    side = torch.cuda.Stream()
    x = torch.ones(n, device="cuda")
    ready = torch.cuda.Event()
    ready.record()
    side.wait_event(ready)
    with torch.cuda.stream(side):
        y = x * 3
    if keep:
        torch.cuda.current_stream().wait_stream(side)
    return y + 1


def racy(n=4):
    return joined(n, keep=False)


def plain(n=4, keep=True):
    return torch.full((n,), 4.0)


def wrong(n=4):
    return torch.full((n,), 5.0)


def twice(n=4):
    y = joined(n)
    torch.cuda.synchronize()
    return y
"""
EDGES = ("pipeline.py:8 record", "pipeline.py:9 wait_event", "pipeline.py:13 wait_stream")
JOINED = """
import pipeline, pytest
@pytest.mark.redgreen
def test_joined():
    return pipeline.joined()
"""
TWICE = "pipeline.py:31 torch.cuda.synchronize"

Outcomes = dict[str, str]


@pytest.fixture
def project(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> pytest.Pytester:
    """A pipeline, and a way to import it."""
    pytester.makepyfile(pipeline=ENGINE)
    pytester.syspathinsert()
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")  # files change faster than their dates
    for name in ("CI", "BUILD_NUMBER"):  # pytest's summary has lines of any length under them
        monkeypatch.delenv(name, raising=False)
    return pytester


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What the prover is asked for in this process."""
    log: list[str] = []
    ask = prover.ask

    def logging(request: Any, *rest: Any) -> Any:
        log.append(request.what)
        return ask(request, *rest)

    monkeypatch.setattr(prover, "ask", logging)
    return log


def outcome(result: pytest.RunResult) -> Outcomes:
    """Node id -> PASSED, FAILED, ...; from -rA."""
    words = ("PASSED", "FAILED", "ERROR", "SKIPPED", "XFAIL", "XPASS")
    lines = [line.split(" ", 1) for line in result.outlines]
    found = {}
    for line in lines:
        if len(line) == 2 and line[0] in words and "::" in line[1]:
            found[line[1].split(" - ")[0]] = line[0]
    return found


def document(path: Path) -> Any:
    return json.loads(path.read_text())
