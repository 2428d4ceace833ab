"""The allocator by name: option, environment, token, plugin."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path

import pytest

import redgreen
from redgreen.backend import ALIASES, ALLOCATORS, canonical, from_environment
from redgreen.pytesting.options import Settings
from redgreen.token import decode
from redgreen.virtual import VirtualGPU
from tests.cli.conftest import Run

# Only expandable segments let the larger request take the freed block.
PROGRAM = """
import torch

def run():
    side, out = torch.cuda.Stream(), torch.zeros(8, dtype=torch.uint8, device="cuda")
    lent = torch.empty(12 << 20, dtype=torch.uint8, device="cuda")
    lent[:8].fill_(3)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        out.add_(lent[:8])
    lent.record_stream(side)
    del lent
    torch.empty(14 << 20, dtype=torch.uint8, device="cuda")[:8].fill_(7)
    torch.cuda.current_stream().wait_stream(side)
    return out
"""


@pytest.fixture
def program(here: Path) -> str:
    (here / "main.py").write_text(PROGRAM)
    return "main.py:run"


def record_stream(document: Mapping[str, object]) -> tuple[str, str | None]:
    edges = document["edges"]
    assert isinstance(edges, list)
    (edge,) = [edge for edge in edges if edge["kind"] == "record_stream"]
    return edge["verdict"], edge["witness"]


def test_the_option_takes_our_names_and_those_of_torch(program: str, here: Path, redgreen: Run
                                                       ) -> None:  # fmt: skip
    found = {}
    for name in ("native", "expandable", "expandable_segments:True"):
        assert redgreen("prove", program, "--allocator", name, "--json", "out.json").status == 0
        found[name] = json.loads((here / "out.json").read_text())
    assert [record_stream(document)[0] for document in found.values()] == [
        "redundant", "load-bearing", "load-bearing"]
    said = [[d["message"] for d in document["diagnostics"] if d["kind"] == "allocator"]
            for document in found.values()]
    assert said[0] == [] and said[1] == said[2]
    assert said[1] == ["memory is handed out by the expandable allocator"]


def test_a_token_replays_under_its_policy(program: str, here: Path, redgreen: Run,
                                          monkeypatch: pytest.MonkeyPatch) -> None:
    redgreen("prove", program, "--allocator", "expandable_segments", "--json", "out.json")
    _, token = record_stream(json.loads((here / "out.json").read_text()))
    assert token is not None and decode(token).allocator == "expandable"
    monkeypatch.setenv("PYTORCH_ALLOC_CONF", "backend:cudaMallocAsync")
    assert redgreen("replay", token, program).status == 0


def test_the_environment_chooses_where_nobody_else_does(program: str, here: Path, redgreen: Run,
                                                        monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTORCH_CUDA_ALLOC_CONF", "max_split_size_mb:64, expandable_segments:True")
    result = redgreen("prove", program, "--json", "out.json")
    assert "expandable allocator, as PYTORCH_CUDA_ALLOC_CONF says" in result.out
    assert record_stream(json.loads((here / "out.json").read_text()))[0] == "load-bearing"
    result = redgreen("prove", program, "--allocator", "native", "--json", "out.json")
    assert "PYTORCH" not in result.out
    assert record_stream(json.loads((here / "out.json").read_text()))[0] == "redundant"


@pytest.mark.parametrize(("environment", "policy"), [
    ({}, "native"),
    ({"PYTORCH_ALLOC_CONF": ""}, "native"),
    ({"PYTORCH_ALLOC_CONF": "expandable_segments:False"}, "native"),
    ({"PYTORCH_ALLOC_CONF": "backend:native"}, "native"),
    ({"PYTORCH_ALLOC_CONF": "expandable_segments:True"}, "expandable"),
    ({"PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, "stream-ordered"),
    ({"PYTORCH_ALLOC_CONF": "garbage_collection_threshold:0.5",
      "PYTORCH_CUDA_ALLOC_CONF": "backend:cudaMallocAsync"}, "native"),
    ({"PYTORCH_ALLOC_CONF": "expandable_segments:True,backend:cudaMallocAsync"}, "stream-ordered"),
])  # fmt: skip
def test_what_the_environment_says(environment: Mapping[str, str], policy: str) -> None:
    assert from_environment(environment)[0] == policy


def test_bad_names_are_one_line() -> None:
    for allocate in (lambda: redgreen.prove(print, allocator="best-fit"),
                     lambda: redgreen.check(print, allocator="best-fit"),
                     lambda: VirtualGPU(allocator="best-fit")):
        with pytest.raises(redgreen.UsageError, match=r"^allocator 'best-fit': use one of nat"):
            allocate()
    with pytest.raises(ValueError, match=r"^allocator: 'best-fit' is not one of native, "):
        Settings().updated({"allocator": "best-fit"})


def test_settings_know_the_names_of_torch() -> None:
    assert Settings().updated({"allocator": "cudaMallocAsync"}).allocator == "stream-ordered"
    assert {canonical(name) for name in (*ALIASES, *ALLOCATORS)} == set(ALLOCATORS)
