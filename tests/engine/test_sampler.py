"""The sampler against direct computation and against transformers' logits processors."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from transformers import (
    RepetitionPenaltyLogitsProcessor,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

from engine import RequestError, SamplingParams
from engine.sampler import SampleRow, sample

VOCAB = 20
LOGITS = torch.randn(1, VOCAB, generator=torch.Generator().manual_seed(0)) * 2


def row(index: int = 0, **changes: Any) -> SampleRow:
    return SampleRow(SamplingParams(**changes), index)


def test_greedy_takes_the_first_of_equal_maxima() -> None:
    logits = torch.tensor([[0.0, 3.0, 3.0], [2.0, 1.0, 2.0]])
    assert sample(logits, [row(), row()]).tolist() == [1, 0]


@pytest.mark.parametrize(
    ("temperature", "top_k", "top_p"),
    [(1.0, 0, 1.0), (0.7, 0, 1.0), (1.5, 5, 1.0), (1.0, 0, 0.8), (2.0, 7, 0.6), (1.0, 1, 1.0)],
)
def test_frequencies_are_the_probabilities_that_transformers_gives(
    temperature: float, top_k: int, top_p: float
) -> None:
    ids = torch.zeros(1, 1, dtype=torch.int64)
    scores = TemperatureLogitsWarper(temperature)(ids, LOGITS)
    if top_k:
        scores = TopKLogitsWarper(top_k)(ids, scores)
    expected = TopPLogitsWarper(top_p)(ids, scores).softmax(-1)[0]
    draws = 4000
    rows = [row(i, temperature=temperature, top_k=top_k, top_p=top_p) for i in range(draws)]
    drawn = sample(LOGITS.expand(draws, -1), rows)
    found = torch.bincount(drawn, minlength=VOCAB) / draws
    assert ((found > 0) <= (expected > 0)).all()
    assert (found - expected).abs().max() < 0.03  # four standard deviations at p = 0.5


def test_greedy_and_drawn_rows_share_a_batch() -> None:
    rows = [row(), row(temperature=1.0, seed=3), row()]
    logits = torch.cat([LOGITS, LOGITS, -LOGITS])
    mixed = sample(logits, rows)
    alone = [sample(logits[i : i + 1], rows[i : i + 1]).item() for i in range(3)]
    assert mixed.tolist() == alone


def test_repetition_penalty_is_that_of_transformers() -> None:
    seen = [3, 7, 7, 11]
    expected = RepetitionPenaltyLogitsProcessor(1.8)(torch.tensor([seen]), LOGITS)
    penalized = SampleRow(SamplingParams(repetition_penalty=1.8), 0, seen[:2], seen[2:])
    assert sample(LOGITS, [penalized]).item() == expected.argmax()
    weak = torch.zeros_like(LOGITS)
    weak[0, 7], weak[0, 1] = 1.7, 1.0  # 1.7 / 1.8 falls below 1.0
    assert sample(weak, [penalized]).item() == 1


def test_presence_counts_once_and_frequency_each_time() -> None:
    logits = torch.zeros(1, VOCAB)
    logits[0, 5], logits[0, 6] = 2.0, 1.5
    twice = {"prompt_ids": [5], "output_ids": [5, 5]}
    for change, expected in (
        ({"presence_penalty": 0.4}, 5),
        ({"presence_penalty": 0.6}, 6),
        ({"frequency_penalty": 0.2}, 5),
        ({"frequency_penalty": 0.3}, 6),
    ):
        rows = [SampleRow(SamplingParams(**change), 2, **twice)]
        assert sample(logits, rows).item() == expected


@pytest.mark.parametrize(
    "change",
    [{"max_tokens": 0}, {"max_tokens": -1}, {"temperature": -0.1}, {"top_k": -1}, {"top_p": 0.0},
     {"top_p": 1.1}, {"repetition_penalty": 0.0}, {"stop": ("",)}],
    ids=str,
)  # fmt: skip
def test_values_out_of_range_are_refused(change: dict[str, Any]) -> None:
    with pytest.raises(RequestError, match=f"^{next(iter(change))} is .*; it must be"):
        SamplingParams(**change)
