"""Mutants from the command line, to the replay of a witness."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.conftest import Run

MAIN = """
import torch

def upload():
    side, ready = torch.cuda.Stream(), torch.cuda.Event()
    buffer = torch.zeros(4, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    for i in range(4):
        source = torch.full((4,), 1.0 + i, pin_memory=True)
        with torch.cuda.stream(side):
            buffer.copy_(source, non_blocking=True)
    ready.record(side)
    torch.cuda.current_stream().wait_event(ready)
    return buffer + 1
"""


@pytest.fixture(autouse=True)
def _main(here: Path) -> None:
    (here / "main.py").write_text(MAIN)


def test_all_in_front_of_the_subject(redgreen: Run) -> None:
    result = redgreen("prove", "--quiet", "--json", "out.json", "--mutants", "main.py:upload")
    assert result.status == 0 and "score    " in result.out
    proof = json.loads(Path("out.json").read_text())
    assert list(proof)[-1] == "mutants"
    found = {m["id"]: m["verdict"] for m in proof["mutants"]}
    assert found["main.py:12 record early"] == found["main.py:12 record stream"] == "killed"
    assert {m["operator"] for m in proof["mutants"]} == {"early", "late", "stream", "free", "unpin"}
    (token,) = [m["witness"] for m in proof["mutants"] if m["id"] == "main.py:12 record early"]
    replayed = redgreen("replay", "--quiet", token, "main.py:upload")
    assert replayed.status == 0 and "early" in replayed.out and "reproduced" in replayed.out


def test_some_and_a_ring_that_is_not_there(redgreen: Run) -> None:
    result = redgreen("prove", "main.py:upload", "--quiet", "--mutants", "late",
                      "--ring", "main.py:2", "--json", "out.json")  # fmt: skip
    assert result.status == 0
    mutants = json.loads(Path("out.json").read_text())["mutants"]
    assert {m["operator"] for m in mutants} == {"late", "collapse"}
    assert "unexercised   main.py:2 allocation collapse" in result.out


def test_not_asked_for(redgreen: Run) -> None:
    result = redgreen("prove", "main.py:upload", "--quiet", "--json", "out.json")
    assert "MUTANTS" not in result.out
    assert "mutants" not in json.loads(Path("out.json").read_text())


@pytest.mark.parametrize("asked", [("--mutants=late",), ("--ring", "main.py:2")])
def test_a_real_gpu_knows_no_mutants(redgreen: Run, asked: tuple[str, ...]) -> None:
    result = redgreen("prove", "main.py:upload", "--device", "cuda", *asked)
    assert (result.status, result.out) == (2, "")
    assert result.err == ("redgreen: mutants: they are made on the virtual GPU only; use "
                          "--device virtual\n")
