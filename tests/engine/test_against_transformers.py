"""Greedy output is token for token that of transformers, however the engine batches.

On random models, whose prompts are longer than a page, and on the trained checkpoints. By default
some prompts, to fewer tokens; with --slow all 24 to 64 tokens.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.engine import oracle
from tests.engine.corpus import CHECKPOINTS, prompt_ids
from tests.engine.harness import Result, config, params, prompts, run

WHOLE = pytest.param(24, 64, marks=pytest.mark.slow)
MODELS = ["dense", "moe", "trained dense", "trained moe"]


@pytest.fixture(params=MODELS)
def directory(request: pytest.FixtureRequest) -> Path:
    *trained, kind = request.param.split()
    found: Path = CHECKPOINTS / kind if trained else request.getfixturevalue(kind)
    return found


@cache
def load(directory: Path) -> Any:
    return oracle.load(directory)


def given(directory: Path, count: int) -> list[list[int]]:
    trained = directory.parent == CHECKPOINTS
    return prompt_ids(directory, count) if trained else prompts(24)[:count]


def check(directory: Path, count: int, tokens: int, **changes: Any) -> Result:
    """Every output is that of transformers."""
    some = given(directory, count)
    result = run(config(directory, **changes), some, params(tokens))
    assert [len(output) for output in result.tokens] == [tokens] * count
    for prompt, output in zip(some, result.tokens, strict=True):
        assert oracle.greedy_disagreements(load(directory), prompt, output) == []
    return result


@pytest.mark.parametrize(("count", "tokens"), [(2, 24), WHOLE])
def test_alone(directory: Path, count: int, tokens: int) -> None:
    for prompt in given(directory, count):
        (found,) = run(config(directory), [prompt], params(tokens)).tokens
        assert len(found) == tokens
        assert oracle.greedy_disagreements(load(directory), prompt, found) == []


@pytest.mark.parametrize(("count", "tokens"), [(24, 16), WHOLE])
def test_in_one_batch(directory: Path, count: int, tokens: int) -> None:
    sizes = {"max_num_seqs": 24, "num_blocks": 24 * 32, "max_num_batched_tokens": 1024}
    check(directory, count, tokens, **sizes)


@pytest.mark.parametrize(("count", "tokens"), [(6, 16), WHOLE])
def test_with_chunked_prefill(directory: Path, count: int, tokens: int) -> None:
    check(directory, count, tokens, max_num_batched_tokens=9)


@pytest.mark.parametrize(("count", "tokens", "blocks"), [
    (6, 24, 24), pytest.param(24, 64, 40, marks=pytest.mark.slow),
])  # fmt: skip
def test_with_preemption(directory: Path, count: int, tokens: int, blocks: int) -> None:
    result = check(directory, count, tokens, num_blocks=blocks, max_model_len=blocks * 4)
    assert result.preemptions > 2
