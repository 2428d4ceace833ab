"""What a device returns is one of the enumerator's outcomes."""

from __future__ import annotations

import pytest

import redgreen
from tests.child import in_child

from .enumerate import GARBAGE
from .generate import generate
from .on_cuda import Found, delayed, examine
from .render import render

SEEDS = range(12)


def _impossible(seeds: range, rounds: int) -> list[str]:
    found = [examine(seed, rounds) for seed in seeds]
    assert all(each.seen for each in found)
    return [f"seed {each.seed}: {each.outside}" for each in found if each.outside]


def _on_the_virtual_gpu() -> list[str]:
    with redgreen.installed():
        return _impossible(SEEDS, 2)


def test_the_virtual_gpu_returns_what_is_possible() -> None:
    assert in_child(_on_the_virtual_gpu) == []


@pytest.mark.cuda
def test_a_real_gpu_returns_what_is_possible() -> None:
    assert _impossible(range(20), 20) == []


def test_what_is_impossible_is_told() -> None:
    possible = frozenset({((1, 2), (3,)), ((GARBAGE, 2), (4,))})
    seen = frozenset({((1, 2), (3,)), ((77, 2), (4,)), ((77, 2), (3,)), ((1, 2), (4, 4))})
    assert set(Found(0, possible, seen).outside) == {((77, 2), (3,)), ((1, 2), (4, 4))}


def test_a_delay_stands_in_front_of_all_that_a_stream_gets() -> None:
    text = render(generate(1)).text
    lines = delayed(text).splitlines()
    assert text.count("with torch.cuda.stream(") == lines.count("        delay()") > 3
    assert [line for line in lines if line.strip() != "delay()"] == text.splitlines()
