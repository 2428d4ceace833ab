"""Between callers and the core: text in, chunks of text out, stop strings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from .core import EngineCore
from .errors import RequestError
from .request import FinishReason, Request, SamplingParams, TokenOutput
from .tokenizer import TextStream, Tokenizer

Prompt = str | Sequence[int]


@dataclass(frozen=True, slots=True)
class Chunk:
    """New tokens of one request and their text ("" without a tokenizer)."""

    request_id: str
    ids: tuple[int, ...] = ()
    text: str = ""
    finish_reason: FinishReason | None = None

    def __add__(self, later: Chunk) -> Chunk:
        """Both as one, for a reader who is slower than the engine."""
        return Chunk(
            self.request_id, self.ids + later.ids, self.text + later.text, later.finish_reason
        )


class Frontend:
    """Feeds a core and turns its outputs into chunks. Used by one thread."""

    def __init__(self, core: EngineCore) -> None:
        self.core = core
        self._directory: Path = core.config.model
        self._texts: dict[str, TextStream] = {}

    @cached_property
    def _tokenizer(self) -> Tokenizer | None:
        return Tokenizer(self._directory) if self.has_text else None

    @property
    def has_text(self) -> bool:
        return (self._directory / "tokenizer.json").exists()

    def encode(self, prompt: Prompt) -> tuple[int, ...]:
        """Raises CheckpointError for text without a tokenizer, RequestError for no prompt."""
        if isinstance(prompt, str):
            return tuple((self._tokenizer or Tokenizer(self._directory)).encode(prompt))
        if not all(isinstance(token, int) for token in prompt):
            raise RequestError("a prompt is text or a sequence of token ids")
        return tuple(prompt)

    def add(self, request_id: str, prompt: Prompt, params: SamplingParams) -> Request:
        """Raises RequestError; other requests are unharmed."""
        if params.stop and not self.has_text:
            raise RequestError(f"request {request_id}: stop strings need a tokenizer.json")
        request = Request(request_id, self.encode(prompt), params)
        self.core.add(request)
        if self._tokenizer is not None:
            self._texts[request_id] = TextStream(self._tokenizer, params.stop)
        return request

    def abort(self, request_id: str) -> bool:
        """False if there is no such request, or it has finished."""
        self._texts.pop(request_id, None)
        return self.core.abort(request_id)

    def step(self) -> list[Chunk]:
        """One step of the core; a request whose text reaches a stop string is ended."""
        return [self._chunk(output) for output in self.core.step()]

    def _chunk(self, output: TokenOutput) -> Chunk:
        stream, reason = self._texts.get(output.request_id), output.finish_reason
        text = ""
        if stream is not None:
            text = stream.push(output.new_ids, final=reason is not None)
            if stream.stopped and reason is None:
                self.core.abort(output.request_id)
            if stream.stopped:
                reason = FinishReason.STOP
        if reason is not None:
            self._texts.pop(output.request_id, None)
        return Chunk(output.request_id, output.new_ids, text, reason)
