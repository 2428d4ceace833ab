"""The synchronous front end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from types import TracebackType

from .checkpoint import Weights
from .config import EngineConfig
from .core import EngineCore
from .errors import RequestError
from .faults import Faults
from .frontend import Chunk, Frontend, Prompt
from .request import FinishReason, SamplingParams


@dataclass(frozen=True, slots=True)
class Completion:
    """All of one request's output."""

    ids: tuple[int, ...]
    text: str
    finish_reason: FinishReason


class LLM:
    """Loads a model and completes prompts in batches. A context manager: leaving it closes it."""

    def __init__(
        self, config: EngineConfig, *, faults: Faults | None = None, weights: Weights | None = None
    ) -> None:
        """Raises CheckpointError and ConfigError."""
        self.core = EngineCore(config, faults=faults, weights=weights)
        self._frontend, self._ids = Frontend(self.core), count()

    def generate(
        self, prompts: Sequence[Prompt], params: SamplingParams | Sequence[SamplingParams]
    ) -> list[Completion]:
        """Completions in the order of ``prompts``; one ``params`` for all, or one each.

        Raises RequestError for the first prompt that cannot run; then none of them runs.
        """
        each = [params] * len(prompts) if isinstance(params, SamplingParams) else list(params)
        if len(each) != len(prompts):
            raise RequestError(f"{len(prompts)} prompts but {len(each)} sampling parameters")
        names: list[str] = []
        try:
            for prompt, own in zip(prompts, each, strict=True):
                name = str(next(self._ids))
                self._frontend.add(name, prompt, own)
                names.append(name)
        except RequestError:
            for name in names:
                self._frontend.abort(name)
            raise
        done = {name: Chunk(name) for name in names}
        while self.core.has_work():
            for chunk in self._frontend.step():
                done[chunk.request_id] += chunk
        return [_completion(done[name]) for name in names]

    def close(self) -> None:
        """Frees the device."""
        self.core.close()

    def __enter__(self) -> LLM:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self.close()


def _completion(chunk: Chunk) -> Completion:
    assert chunk.finish_reason is not None
    return Completion(chunk.ids, chunk.text, chunk.finish_reason)
