"""The gates of the pull request that this engine follows, under their names, on the virtual GPU.

``test_on_cuda`` has them for a real one.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

import redgreen
from engine import AsyncLLM, Flags
from tests.engine import subjects
from tests.engine.harness import ON, config, params, prompts, run

PROMPT = prompts(1, longest=9, seed=4)[0]


KINDS = ["dense", pytest.param("moe", marks=pytest.mark.slow)]


@pytest.mark.usefixtures("virtual_gpu")
@pytest.mark.parametrize("model", KINDS, indirect=True)
def test_paged_engine(model: Path) -> None:
    """Single, and six requests padded to eight, three times."""
    (golden,) = run(config(model), [PROMPT], params(8)).tokens
    for _ in range(3):
        settings = config(model, "cuda", flags=ON, block_size=32)
        assert run(settings, [PROMPT], params(8)).tokens == [golden]
        six = run(settings, [PROMPT] * 6, params(8))
        assert six.tokens == [golden] * 6
        assert six.counters.replays > 0


async def _collect(llm: AsyncLLM, prompt: list[int]) -> list[int]:
    ids: list[int] = []
    async for chunk in llm.generate(prompt, params(10)):
        ids.extend(chunk.ids)
    return ids


@pytest.mark.slow
@pytest.mark.usefixtures("virtual_gpu")
def test_async_serving(dense: Path) -> None:
    """Batch 1 five times, then 32 callers at once; depth 2 and skipped drains engaged."""
    given = prompts(32, longest=9)
    expected = run(config(dense, num_blocks=512), given, params(10)).tokens

    async def serve() -> None:
        settings = config(dense, "cuda", flags=ON, max_num_seqs=32, num_blocks=512)
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


def poisoned() -> object:
    return subjects.decode(flags=Flags(executor=True, executor_poison=True))


@pytest.mark.slow
def test_poison_is_red_and_deterministic() -> None:
    """The flag: on some schedule the copies are late, the witness says which, and it replays."""
    first, second = (
        redgreen.prove(poisoned, edges="nowhere", budget=12).to_dict()["green"] for _ in range(2)
    )
    assert first["verdict"] == second["verdict"] == "refuted"
    assert first["races"] == second["races"]
    assert {race["hazard"] for race in first["races"]} == {"HOST-WAR"}


@pytest.mark.slow
def test_no_double_buffer_passes_because_of_the_input_staged_event() -> None:
    document = redgreen.prove(subjects.one_slot, edges="*engine/*").to_dict()
    assert document["green"]["verdict"] == "proved"
    verdicts = {e["verdict"] for e in document["edges"] if "E08" in e["code"]}
    assert verdicts == {"load-bearing"}
