"""Greedy output is token for token that of transformers, however the engine batches."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.engine import oracle
from tests.engine.harness import config, params, prompts, run

PROMPTS = prompts(24)
TOKENS = 64


@cache
def load(directory: Path) -> Any:
    return oracle.load(directory)


def check(model: Path, given: list[list[int]], found: list[list[int]]) -> None:
    assert [len(output) for output in found] == [TOKENS] * len(given)
    for prompt, output in zip(given, found, strict=True):
        assert oracle.greedy_disagreements(load(model), prompt, output) == []


@pytest.mark.parametrize(
    "some", [PROMPTS[:4], pytest.param(PROMPTS, marks=pytest.mark.slow)], ids=["4", "24"]
)
def test_alone(model: Path, some: list[list[int]]) -> None:
    found = [run(config(model), [prompt], params(TOKENS)).tokens[0] for prompt in some]
    check(model, some, found)


def test_in_one_batch(model: Path) -> None:
    settings = config(model, max_num_seqs=24, num_blocks=24 * 32, max_num_batched_tokens=1024)
    check(model, PROMPTS, run(settings, PROMPTS, params(TOKENS)).tokens)


def test_with_chunked_prefill(model: Path) -> None:
    settings = config(model, max_num_batched_tokens=9)
    check(model, PROMPTS[:8], run(settings, PROMPTS[:8], params(TOKENS)).tokens)


def test_with_preemption(model: Path) -> None:
    settings = config(model, num_blocks=40)
    result = run(settings, PROMPTS[:8], params(TOKENS))
    assert result.preemptions > 2
    check(model, PROMPTS[:8], result.tokens)
