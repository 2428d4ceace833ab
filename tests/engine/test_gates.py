"""The gates of the pull request that this engine follows, under their names, on the virtual GPU.

``test_on_cuda`` has them for a real one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import redgreen
from engine import AsyncLLM, Flags
from engine.checkpoints.corpus import PROMPTS
from tests.engine import subjects
from tests.engine.corpus import CHECKPOINTS, prompt_ids, texts
from tests.engine.harness import ON, ONE_SLOT, config, params, prompts, run

GOLDEN = {  # after "The capital of France is Paris, and the"
    "dense": " capital of Greece is Athens. What colour is",
    "moe": " capital of Greece is Athens.The capital of",
}
REPETITIONS = [
    pytest.param("dense", 1, id="dense"),
    pytest.param("dense", 3, id="dense-three-times", marks=pytest.mark.slow),
    pytest.param("moe", 3, id="moe-three-times", marks=pytest.mark.slow),
]


@pytest.mark.usefixtures("virtual_gpu")
@pytest.mark.parametrize(("kind", "times"), REPETITIONS)
def test_paged_engine(kind: str, times: int) -> None:
    """Single, and six requests padded to eight."""
    model, each = CHECKPOINTS / kind, params(16)
    (prompt,) = prompt_ids(model, 1)
    (golden,) = run(config(model), [prompt], each).tokens
    assert texts(model, [golden]) == [PROMPTS[0] + GOLDEN[kind]]
    for _ in range(times):
        settings = config(model, "cuda", flags=ON, block_size=64, max_num_batched_tokens=128)
        assert run(settings, [prompt], each).tokens == [golden]
        six = run(settings, [prompt] * 6, each)
        assert six.tokens == [golden] * 6
        assert six.counters.replays > 0


async def _collect(llm: AsyncLLM, prompt: list[int]) -> list[int]:
    ids: list[int] = []
    async for chunk in llm.generate(prompt, params(16)):
        ids.extend(chunk.ids)
    return ids


@pytest.mark.slow
@pytest.mark.usefixtures("virtual_gpu")
def test_async_serving(trained: Path) -> None:
    """Batch 1 five times, then 32 callers at once; depth 2 and skipped drains engaged."""
    given = (prompt_ids(trained) * 2)[:32]
    expected = run(config(trained, num_blocks=512), given, params(16)).tokens

    async def serve() -> None:
        settings = config(trained, "cuda", flags=ON, max_num_seqs=32, num_blocks=512, block_size=16)
        assert settings.depth == 2
        async with AsyncLLM(settings) as llm:
            for _ in range(5):
                assert await _collect(llm, given[0]) == expected[0]
            found = await asyncio.gather(*[_collect(llm, prompt) for prompt in given])
            assert found == expected
            assert llm.core.counters.drain_skips > 0

    asyncio.run(serve())


@pytest.mark.usefixtures("virtual_gpu")
@pytest.mark.parametrize(
    "tokens", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in (32, 100))]
)
def test_served_ignore_eos(dense: Path, tokens: int) -> None:
    """Far past the end token, with and without it."""
    result = run(config(dense, "cuda", flags=ON), prompts(4, longest=9), params(tokens))
    assert [len(output) for output in result.tokens] == [tokens] * 4


def answer(kind: str, flags: Flags) -> Any:
    """Two prompts on a trained checkpoint: tokens, and every byte of pages and states."""
    model = CHECKPOINTS / kind
    settings = config(model, "cuda", flags=flags, block_size=64, num_blocks=4, max_num_seqs=2)
    result = run(settings, prompt_ids(model, 2), params(10))
    return result.tokens, result.cache


POISON = Flags(executor=True, executor_poison=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", GOLDEN)
def test_poison_is_red_and_deterministic(kind: str) -> None:
    """The flag: on some schedule the copies are late, the witness says which, and it replays."""
    first, second = (
        redgreen.prove(answer, kind, POISON, edges="nowhere", budget=12).to_dict()["green"]
        for _ in range(2)
    )
    assert first["verdict"] == second["verdict"] == "refuted"
    assert first["races"] == second["races"]
    assert {race["hazard"] for race in first["races"]} == {"HOST-WAR"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", GOLDEN)
def test_no_double_buffer_passes(kind: str) -> None:
    """Right on every schedule: one slot, and the drain is skipped all the same."""
    document = redgreen.prove(
        answer, kind, ONE_SLOT, reference=lambda kind, flags: answer(kind, ON), edges="nowhere"
    ).to_dict()
    assert document["green"]["verdict"] == "proved"
    assert document["green"]["reference"] == "identical"


@pytest.mark.slow
def test_no_double_buffer_passes_because_of_the_input_staged_event() -> None:
    """With every byte of pages and states compared, on a model small enough for every edge."""
    document = redgreen.prove(subjects.one_slot, edges="*engine/*").to_dict()
    assert document["green"]["verdict"] == "proved"
    verdicts = {e["verdict"] for e in document["edges"] if "E08" in e["code"]}
    assert verdicts == {"load-bearing"}
