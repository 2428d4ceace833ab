"""A token gives the same first differing byte every time, in every process."""

from __future__ import annotations

import functools
import subprocess
import sys
from pathlib import Path

import pytest

from redgreen import api
from redgreen.difference import first_difference
from redgreen.replay import replay
from redgreen.subject import parse
from redgreen.token import decode
from tests.child import preload

PIPELINE = Path(__file__).parent / "pipeline.py"
SUBJECT = f"{PIPELINE}:run"


@functools.cache
def witness() -> str:
    preload()
    proof = api.prove_subject(parse(SUBJECT))
    (token,) = {e.witness for e in proof.edges if e.kind == "wait_event"}
    assert token
    return token


def differences(times: int) -> set[str]:
    token = decode(witness())
    subject = parse(SUBJECT)
    runner = api.make_runner(subject, "virtual", "native", 60.0)
    again = [replay(token, subject, runner) for _ in range(times)]
    assert all(each.reproduced for each in again)
    return {str(first_difference(each.base, each.run.outcome)) for each in again}


@pytest.mark.parametrize("half", [1, 2])  # -n 2: one in each worker
def test_in_this_process(half: int) -> None:
    (difference,) = differences(50)
    assert "element [0, 0]" in difference or "byte" in difference


def test_in_other_processes() -> None:
    (here,) = differences(1)
    command = "from redgreen.cli import main; raise SystemExit(main())"
    for _ in range(2):
        done = subprocess.run(
            [sys.executable, "-c", command, "replay", witness(), SUBJECT, "--quiet"],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        assert " ".join(here.split()) in " ".join(done.stdout.split())
