"""Mutants from the command line, to the replay of a witness."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

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
    assert found["main.py:12 record [early]"] == found["main.py:12 record [stream]"] == "killed"
    assert {m["operator"] for m in proof["mutants"]} == {"early", "late", "stream", "free", "unpin"}
    (token,) = [m["witness"] for m in proof["mutants"] if m["id"] == "main.py:12 record [early]"]
    replayed = redgreen("replay", "--quiet", token, "main.py:upload")
    assert replayed.status == 0 and "early" in replayed.out and "reproduced" in replayed.out


def test_some_and_a_ring_that_is_not_there(redgreen: Run) -> None:
    result = redgreen("prove", "main.py:upload", "--quiet", "--mutants", "late",
                      "--ring", "main.py:2", "--json", "out.json")  # fmt: skip
    assert result.status == 0
    mutants = json.loads(Path("out.json").read_text())["mutants"]
    assert {m["operator"] for m in mutants} == {"late", "collapse"}
    assert "unexercised   main.py:2 allocation [collapse]" in result.out


def test_not_asked_for(redgreen: Run) -> None:
    result = redgreen("prove", "main.py:upload", "--quiet", "--json", "out.json")
    assert "MUTANTS" not in result.out
    assert "mutants" not in json.loads(Path("out.json").read_text())


MORE = """
import torch

def pairs(n=1):
    ring = [(torch.empty(8, pin_memory=True), torch.empty(8, device="cuda")) for _ in range(n)]
    for host, device in ring:
        host.fill_(1)
        device.copy_(host)
    return [device.clone() for _, device in ring]

def nothing():
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        x = torch.ones(8, device="cuda")
    torch.cuda.current_stream().wait_stream(side)
    x.add_(1)

def many(n=6):
    side = [torch.cuda.Stream() for _ in range(3)]
    out = torch.zeros(n, 3, 8, device="cuda")
    stage = [torch.empty(8, pin_memory=True) for _ in side]
    done = [torch.cuda.Event() for _ in side]
    for i in range(n):
        for k, stream in enumerate(side):
            done[k].synchronize()
            stage[k].fill_(1)
            with torch.cuda.stream(stream):
                out[i, k].copy_(stage[k], non_blocking=True)
                done[k].record()
    for stream in side:
        torch.cuda.current_stream().wait_stream(stream)
    return out
"""


def judged(redgreen: Run, *arguments: str) -> dict[str, Any]:
    Path("more.py").write_text(MORE)
    redgreen("prove", "--quiet", "--json", "out.json", *arguments)
    proof: dict[str, Any] = json.loads(Path("out.json").read_text())
    return proof


def test_a_bound_leaves_a_mutant_open(redgreen: Run) -> None:
    proof = judged(redgreen, "more.py:many", "--mutants", "early,late", "--budget", "12")
    verdicts = {m["verdict"] for m in proof["mutants"]}
    assert "inconclusive" in verdicts and "survived" not in verdicts


def test_a_pinned_and_a_device_buffer_of_one_line_stay_apart(redgreen: Run) -> None:
    """Of one slot there is nothing to collapse."""
    proof = judged(redgreen, "more.py:pairs", "--ring", "more.py:5")
    assert [m["verdict"] for m in proof["mutants"]] == ["unexercised"]


def test_without_an_output_nothing_may_be_taken_out(redgreen: Run) -> None:
    proof = judged(redgreen, "more.py:nothing")
    assert proof["green"]["verdict"] == "inconclusive"
    assert {(e["verdict"], e["reason"]) for e in proof["edges"]} == {
        ("inconclusive", "no output bytes to compare")}  # fmt: skip


def test_one_thread_is_one_thread_where_nothing_is_proved(redgreen: Run) -> None:
    assert judged(redgreen, "more.py:nothing")["green"]["scope"] == "one host thread"


@pytest.mark.parametrize("asked", [("--mutants=late",), ("--ring", "main.py:2")])
def test_a_real_gpu_knows_no_mutants(redgreen: Run, asked: tuple[str, ...]) -> None:
    result = redgreen("prove", "main.py:upload", "--device", "cuda", *asked)
    assert (result.status, result.out) == (2, "")
    assert result.err == ("redgreen: mutants: they are made on the virtual GPU only; use "
                          "--device virtual\n")
