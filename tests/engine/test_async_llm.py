"""The asynchronous front end gives what the synchronous one gives, and isolates its callers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from engine import LLM, AsyncLLM, EngineError, FinishReason, RequestError, SamplingParams
from tests.engine.harness import config, params, prompts

PROMPTS = prompts(32, longest=12)


async def complete(llm: AsyncLLM, prompt: list[int], sampling: SamplingParams) -> tuple[int, ...]:
    ids: tuple[int, ...] = ()
    async for chunk in llm.generate(prompt, sampling):
        ids += chunk.ids
    return ids


def serve(model: Path, client: Callable[[AsyncLLM], Awaitable[object]]) -> None:
    async def run() -> None:
        async with AsyncLLM(config(model)) as llm:
            await client(llm)

    asyncio.run(asyncio.wait_for(run(), timeout=120))


@pytest.fixture(scope="module")
def expected(dense: Path) -> list[tuple[int, ...]]:
    with LLM(config(dense)) as llm:
        return [completion.ids for completion in llm.generate(PROMPTS, params(12))]


def test_32_callers_at_once(dense: Path, expected: list[tuple[int, ...]]) -> None:
    async def client(llm: AsyncLLM) -> None:
        found = await asyncio.gather(*[complete(llm, p, params(12)) for p in PROMPTS])
        assert found == expected

    serve(dense, client)


def test_tokens_come_while_the_request_runs(dense: Path) -> None:
    async def client(llm: AsyncLLM) -> None:
        chunks = [chunk async for chunk in llm.generate(PROMPTS[0], params(100))]
        assert sum(len(chunk.ids) for chunk in chunks) == 100
        assert len(chunks) > 1
        assert [c.finish_reason for c in chunks if c.finish_reason] == [FinishReason.LENGTH]

    serve(dense, client)


def test_a_bad_request_fails_alone(dense: Path, expected: list[tuple[int, ...]]) -> None:
    async def client(llm: AsyncLLM) -> None:
        good, bad = await asyncio.gather(
            complete(llm, PROMPTS[0], params(12)),
            complete(llm, [99], params(12)),
            return_exceptions=True,
        )
        assert good == expected[0]
        assert isinstance(bad, RequestError)

    serve(dense, client)


def test_who_stops_reading_aborts(dense: Path) -> None:
    async def client(llm: AsyncLLM) -> None:
        stream = llm.generate(PROMPTS[0], params(110), "mine")
        async for _ in stream:
            break
        await stream.aclose()  # type: ignore[attr-defined]
        while llm.core.has_work():
            await asyncio.sleep(0.001)
        again = [chunk async for chunk in llm.generate(PROMPTS[1], params(12), "mine")]
        assert sum(len(chunk.ids) for chunk in again) == 12
        assert llm.core.scheduler.cache.free_blocks == llm.core.config.num_blocks

    serve(dense, client)


def test_a_failed_engine_tells_every_caller(dense: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def client(llm: AsyncLLM) -> None:
        def fail() -> None:
            raise RuntimeError("out of order")

        monkeypatch.setattr(llm.core, "step", fail)
        calls = [complete(llm, p, params(9)) for p in PROMPTS[:3]]
        failures = await asyncio.gather(*calls, return_exceptions=True)
        failures += await asyncio.gather(complete(llm, [1], params(9)), return_exceptions=True)
        for failure in failures:
            assert isinstance(failure, EngineError)
            assert "the engine has stopped: out of order" in str(failure)

    serve(dense, client)


def test_after_closing_nobody_waits_for_ever(dense: Path) -> None:
    async def run() -> None:
        llm = AsyncLLM(config(dense))
        reading = asyncio.create_task(complete(llm, PROMPTS[0], params(110)))
        await asyncio.sleep(0)
        await llm.close()
        with pytest.raises(EngineError, match="it was closed"):
            await reading
        with pytest.raises(EngineError, match="it was closed"):
            await complete(llm, [1], params(3))
        await llm.close()

    asyncio.run(asyncio.wait_for(run(), timeout=60))
