"""The trained checkpoints: their prompts as ids, and whether a text is one of their corpus."""

from __future__ import annotations

import re
from functools import cache
from itertools import islice
from pathlib import Path

from engine.checkpoints.corpus import PROMPTS, sentences
from engine.tokenizer import Tokenizer

CHECKPOINTS = Path(__file__).parents[2] / "engine" / "checkpoints"


@cache
def _tokenizer(checkpoint: Path) -> Tokenizer:
    return Tokenizer(checkpoint)


def prompt_ids(checkpoint: Path, count: int = len(PROMPTS)) -> list[list[int]]:
    """The first ``count`` prompts, as tokens."""
    return [_tokenizer(checkpoint).encode(prompt) for prompt in PROMPTS[:count]]


def texts(checkpoint: Path, outputs: list[list[int]]) -> list[str]:
    """Of the outputs for the first prompts: prompt and output."""
    decoded = [_tokenizer(checkpoint).decode(ids) for ids in outputs]
    return [prompt + output for prompt, output in zip(PROMPTS, decoded, strict=False)]


@cache
def _corpus() -> frozenset[str]:
    """Every sentence, and what it begins with; of a question and its answer each."""
    parts = {part for said in set(islice(sentences(1), 60_000)) for part in _sentences(said)}
    return frozenset(part[:end] for part in parts for end in range(1, len(part) + 1))


def _sentences(said: str) -> list[str]:
    return re.findall(r"[^ .?][^.?]*[.?]?", said)


def wrong(said: str) -> list[str]:
    """The sentences that the corpus does not have; the last may be unfinished."""
    *finished, last = _sentences(said)
    unknown = [part for part in finished if part not in _corpus()]
    return unknown + [last] * (last.rstrip() not in _corpus())


def unknown_words(said: str) -> set[str]:
    """Words that the corpus does not have; the last may be unfinished."""
    known = {word for part in _corpus() for word in re.findall(r"[A-Za-z]+", part)}
    return set(re.findall(r"[A-Za-z]+", said)[:-1]) - known
