from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from redgreen.faults import Fault
from redgreen.isolation import ForkedRunner
from redgreen.schedule import SERIAL, Order, Schedule
from redgreen.subject import parse
from redgreen.token import Token, Tokens, decode, encode
from tests.cli.conftest import Run
from tests.isolation.fake import EDGE, STEPS, FakeGPU

MAIN = """
from tests.isolation import fake
def run():
    waited = fake.gpu().wait()
    return {"tokens": bytes([1, 2, 3 if waited else 7])}
def raises():
    fake.gpu().wait()
    raise ValueError("always")
def raises_under_fault():
    if not fake.gpu().wait(): raise IndexError("CUDA error: device-side assert triggered\\nmore")
    return 1
def endless_under_fault():
    while not fake.gpu().wait(): pass
"""
DROP = frozenset({Fault("drop", EDGE)})
SCHEDULE = Schedule("lazy", orders=(Order(STEPS[0], STEPS[1]),))


@pytest.fixture
def made(here: Path, fake_gpu: None) -> object:
    """Makes the token of a function as a proof does."""
    (here / "main.py").write_text(MAIN)

    def make(name: str = "run", schedule: Schedule = SCHEDULE) -> str:
        subject = parse(f"main.py:{name}")
        runner = ForkedRunner(subject, gpu=FakeGPU)
        runner.run(SERIAL)
        runner.run(schedule, DROP, 1000)
        return Tokens(subject.program, "native", runner.digests)(schedule, DROP)

    return make


def test_a_witness_is_reproduced_and_explained(made: type[str], redgreen: Run) -> None:
    result = redgreen("replay", made(), "main.py:run", "--quiet")
    assert result.status == 0 and result.err == ""
    assert result.out == (
        "schedule    no device step before something waits for it; hold decode:copy_#0 until"
        " decode:mul#0\n"
        "fault       drop /somewhere/pipeline.py:31 wait_event: main.wait_event(ready)\n"
        "outcome     returned an output\n"
        "difference  output['tokens'] (bytes): byte 2 is 07 instead of 03\n"
        "\nreproduced\n"
    )


def test_the_wrapped_token_of_the_report_is_accepted(made: type[str], redgreen: Run) -> None:
    token = made()
    assert redgreen("replay", f"{token[:40]}\\\n{token[40:]}", "main.py:run").status == 0


def test_from_another_directory(made: type[str], redgreen: Run, here: Path) -> None:
    token = made()
    (here / "moved").mkdir()
    (here / "main.py").rename(here / "moved" / "main.py")
    assert redgreen("replay", token, "moved/main.py:run").status == 0


@pytest.mark.parametrize(
    ("name", "outcome"),
    [
        ("raises_under_fault", "raised IndexError: CUDA error: device-side assert triggered"),
        ("endless_under_fault", "never ended"),
    ],
)
def test_other_outcomes(made: type[str], redgreen: Run, name: str, outcome: str) -> None:
    result = redgreen("replay", made(name), f"main.py:{name}")
    assert result.status == 0
    assert f"outcome     {outcome}" in result.out


def test_a_fixed_program_is_not_reproduced(made: type[str], redgreen: Run, here: Path) -> None:
    token = made()
    (here / "main.py").write_text(MAIN.replace("3 if waited else 7", "3"))
    result = redgreen("replay", token, "main.py:run")
    assert result.status == 1
    assert result.out.endswith("\nnot reproduced: the output is the right one\n")


def test_another_wrong_output_is_not_reproduced(
    made: type[str], redgreen: Run, here: Path
) -> None:
    token = made()
    (here / "main.py").write_text(MAIN.replace("else 7", "else 8"))
    result = redgreen("replay", token, "main.py:run")
    assert result.status == 1
    assert "not reproduced: the output is wrong, but not as recorded" in result.out


def test_other_bytes_everywhere_are_another_machine(
    made: type[str], redgreen: Run, here: Path
) -> None:
    token = made()
    (here / "main.py").write_text(MAIN.replace("[1, 2", "[1, 9"))
    assert redgreen("replay", token, "main.py:run").status == 0


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: replace(t, program="main.py:other"), "it is of main.py:other, not of"),
        (
            lambda t: replace(t, schedule=Schedule(orders=(Order("gone:op#0", STEPS[0]),))),
            "this program has no step gone:op#0",
        ),
        (
            lambda t: replace(t, faults=frozenset({Fault("drop", replace(EDGE, kind="record"))})),
            "this program has no edge pipeline.py:31 record in decode",
        ),
    ],
)
def test_not_applicable(made: type[str], redgreen: Run, change: object, message: str) -> None:
    token: Token = change(decode(made()))  # type: ignore[operator]
    result = redgreen("replay", encode(token), "main.py:run", "--quiet")
    assert f"token not applicable: {message}" in result.line


def test_a_subject_that_always_raises_shows_why(made: type[str], redgreen: Run) -> None:
    result = redgreen("replay", made("raises"), "main.py:raises")
    assert result.status == 2
    assert "ValueError: always" in result.err
