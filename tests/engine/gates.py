"""Gates that hold on a virtual device and on a real one, on the trained checkpoints."""

from __future__ import annotations

import asyncio
from pathlib import Path

from engine import AsyncLLM
from engine.checkpoints.corpus import PROMPTS
from tests.engine.corpus import CHECKPOINTS, prompt_ids, texts
from tests.engine.harness import ON, config, params, run

GOLDEN = {  # after "The capital of France is Paris, and the"
    "dense": " capital of Greece is Athens. What colour is",
    "moe": " capital of Greece is Athens.The capital of",
}


def paged_engine(kind: str, times: int) -> None:
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


def async_serving(model: Path) -> None:
    """Batch 1 five times, then 32 callers at once; depth 2 and skipped drains engaged."""
    given = (prompt_ids(model) * 2)[:32]
    expected = run(config(model, num_blocks=512), given, params(16)).tokens

    async def serve() -> None:
        settings = config(model, "cuda", flags=ON, max_num_seqs=32, num_blocks=512, block_size=16)
        assert settings.depth == 2
        async with AsyncLLM(settings) as llm:
            for _ in range(5):
                assert await _collect(llm, given[0]) == expected[0]
            found = await asyncio.gather(*[_collect(llm, prompt) for prompt in given])
            assert found == expected
            assert llm.core.counters.drain_skips > 0

    asyncio.run(serve())


async def _collect(llm: AsyncLLM, prompt: list[int]) -> list[int]:
    ids: list[int] = []
    async for chunk in llm.generate(prompt, params(16)):
        ids.extend(chunk.ids)
    return ids
