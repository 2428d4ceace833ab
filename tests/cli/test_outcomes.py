"""What the command line makes of a proof and of a subject that does not end well."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from redgreen import api, cli, jsonfile
from redgreen.verdict import Green, Proof
from tests.cli.conftest import Run

MAIN = """
import os, sys, time, random
from tests.isolation import fake
def good(): return [1, 2, 3]
def raises():
    print("said before")
    raise ValueError("the reason")
def exits(): sys.exit(3)
def dies(): os._exit(3)
def hangs():
    while True: time.sleep(0.01)
def unseeded(): return random.random()
def clock(): return time.time_ns()
def unreadable(): return object()
def needs(x): return x
VALUE = 1
"""


@pytest.fixture
def subject(here: Path, fake_gpu: None) -> str:
    (here / "main.py").write_text(MAIN)
    return "main.py:"


def green(verdict: Any, reference: Any = None) -> Proof:
    return Proof("main.py:good", "virtual", Green(verdict, 1, 9, 4, reference))


@pytest.mark.parametrize(
    ("proof", "status"),
    [
        (green("proved"), 0),
        (green("proved", "identical"), 0),
        (green("proved", "different"), 1),
        (green("refuted"), 1),
        (green("refuted", "identical"), 1),
        (green("inconclusive"), 3),
        (green("inconclusive", "different"), 1),
    ],
)
def test_exit_status_report_and_json(
    subject: str, redgreen: Run, monkeypatch: pytest.MonkeyPatch, proof: Proof, status: int
) -> None:
    monkeypatch.setattr(api, "prove_subject", lambda *_, **__: proof)
    Path("out.json").write_text("old")
    result = redgreen("prove", subject + "good", "--json", "out.json")
    assert result.status == status
    assert f"green      {proof.green.verdict}: 1 outcome in 9 schedules" in result.out
    assert json.loads(Path("out.json").read_text()) == proof.to_dict()
    assert sorted(os.listdir()) == ["main.py", "out.json"]


def test_json_to_standard_output(
    subject: str, redgreen: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(api, "prove_subject", lambda *_, **__: green("proved"))
    result = redgreen("prove", subject + "good", "--json", "/dev/stdout")
    assert '\n{\n  "schema": 1' in result.out


def test_json_through_a_link_with_the_permissions_of_the_file(here: Path) -> None:
    (here / "real.json").write_text("old")
    (here / "real.json").chmod(0o640)
    (here / "link.json").symlink_to("real.json")
    jsonfile.JSONFile("link.json").write({"a": 1})
    assert (here / "link.json").is_symlink()
    assert json.loads((here / "real.json").read_text()) == {"a": 1}
    assert (here / "real.json").stat().st_mode & 0o777 == 0o640
    jsonfile.JSONFile("new.json").write([])
    assert (here / "new.json").stat().st_mode & 0o777 == 0o644


def test_a_subject_that_raises_shows_its_traceback_and_what_it_printed(
    subject: str, redgreen: Run
) -> None:
    result = redgreen("prove", subject + "raises")
    assert result.status == 2 and result.out == ""
    assert "ValueError: the reason" in result.err
    assert "main.py" in result.err and "in raises" in result.err
    assert "said before" in result.err
    assert "redgreen/" not in result.err.replace("redgreen: ", "")
    assert result.err.endswith("redgreen: main.py:raises failed with every edge in place (above)\n")


@pytest.mark.parametrize(
    ("name", "message"), [("exits", "SystemExit: 3"), ("dies", "exit status 3"),
                          ("unreadable", "which has no bytes to compare")]
)  # fmt: skip
def test_other_ways_to_fail(subject: str, redgreen: Run, name: str, message: str) -> None:
    result = redgreen("prove", subject + name)
    assert result.status == 2
    assert message in result.err


@pytest.mark.parametrize(
    ("name", "message"), [("absent", "no such function; it has clock, dies, exits, good"),
                          ("VALUE", "not a function"), ("needs", "takes (x), but is called")]
)  # fmt: skip
def test_no_such_function(subject: str, redgreen: Run, name: str, message: str) -> None:
    assert message in redgreen("prove", subject + name, "--quiet").line


def test_a_subject_that_never_ends_is_inconclusive(subject: str, redgreen: Run) -> None:
    result = redgreen("prove", subject + "hangs", "--timeout", "0.3", "--json", "out.json")
    assert result.status == 3
    assert "no result after 0.3 s" in result.out and "in hangs" in result.out
    assert json.loads(Path("out.json").read_text())["green"]["verdict"] == "inconclusive"


@pytest.mark.parametrize("name", ["clock", "unseeded"])
def test_what_nobody_controls_is_inconclusive(subject: str, redgreen: Run, name: str) -> None:
    result = redgreen("prove", subject + name)
    assert result.status == 3
    assert "two serial runs with equal traces gave different outputs: output byte" in result.out


def test_no_gpu_work_is_inconclusive(subject: str, redgreen: Run) -> None:
    result = redgreen("prove", subject + "good")
    assert result.status == 3
    assert "vacuous: no device work was enqueued" in result.out


def test_progress_is_on_stderr_and_can_be_quiet(
    subject: str, redgreen: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("redgreen.progress._PATIENCE", 0)
    said = redgreen("prove", subject + "good").err.splitlines()
    assert said[0] == "redgreen: importing torch"
    assert any(re.match(r"redgreen: .* \d+/\d+, \d+ runs$", line) for line in said), said
    assert redgreen("prove", subject + "good", "--quiet").err == ""


def test_an_error_in_redgreen_says_so(
    subject: str, redgreen: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise AssertionError("the reason")

    monkeypatch.setattr(api, "prove_subject", broken)
    result = redgreen("prove", subject + "good")
    assert result.status == 4
    assert "Traceback" in result.err and "AssertionError: the reason" in result.err
    assert "this is a bug in redgreen" in result.err


def test_an_interrupt_leaves_what_is_known(
    subject: str, redgreen: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> Proof:
        try:
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(5)
        except KeyboardInterrupt:  # as the core does
            return green("inconclusive")
        raise AssertionError

    before = signal.getsignal(signal.SIGINT)
    monkeypatch.setattr(api, "prove_subject", interrupted)
    result = redgreen("prove", subject + "good", "--json", "out.json")
    assert signal.getsignal(signal.SIGINT) is before
    assert result.status == 130
    assert "green      inconclusive" in result.out
    assert "interrupted; the report has what was known" in result.err
    assert Path("out.json").exists()


def test_a_reader_that_leaves_is_no_error(here: Path) -> None:
    code = (
        "import sys; from redgreen import cli\n"
        "cli._prove = lambda *_: [print('x' * 1000) for _ in range(10_000)] and 0\n"
        "sys.exit(cli.main(['prove', 'x']))"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout and process.stderr
    process.stdout.close()
    assert process.stderr.read() == b""
    process.wait(20)


def test_exit_status_of_an_unknown_verdict_is_an_error() -> None:
    with pytest.raises(KeyError):
        cli.exit_status({"green": {"verdict": "perhaps", "reference": None}})
