"""From logits to token ids."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from .request import SamplingParams


@dataclass(frozen=True, slots=True)
class SampleRow:
    """What the choice of one row's token depends on, besides its logits."""

    params: SamplingParams
    index: int  # of the token in the request's output
    prompt_ids: Sequence[int] = ()  # with penalties
    output_ids: Sequence[int] = ()  # with penalties

    @property
    def draw(self) -> float:
        """In [0, 1): the same for a seed and an index, in any batch and after preemption."""
        return random.Random(f"{self.params.seed}/{self.index}").random()


def sample(logits: Tensor, rows: Sequence[SampleRow]) -> Tensor:
    """One id per row, int64 [R], of float32 logits [R, vocab]. Nothing waits for the device."""
    if any(row.params.penalized for row in rows):
        logits = _penalize(logits, rows)
    greedy = logits.argmax(-1)
    if all(row.params.greedy for row in rows):
        return greedy
    device = logits.device
    drawn = _draw(logits, rows)
    is_greedy = _upload([row.params.greedy for row in rows], torch.bool, device)
    return torch.where(is_greedy, greedy, drawn)


def _upload(values: list[bool] | list[int] | list[float], dtype: torch.dtype,
            device: torch.device) -> Tensor:  # fmt: skip
    """E21: WAR on a temporary. It is pageable, so the copy has read it when the call returns."""
    return torch.tensor(values, dtype=dtype).to(device, non_blocking=True)


def _draw(logits: Tensor, rows: Sequence[SampleRow]) -> Tensor:
    """Inverts the cumulative distribution of the tokens that top_k and top_p leave."""
    device, params = logits.device, [row.params for row in rows]
    vocab = logits.shape[-1]
    heat = _upload([1.0 if p.greedy else p.temperature for p in params], torch.float32, device)
    keep = _upload([p.top_k or vocab for p in params], torch.int64, device)
    mass = _upload([p.top_p for p in params], torch.float32, device)
    point = _upload([row.draw for row in rows], torch.float32, device)
    ordered, tokens = torch.sort(logits / heat[:, None], dim=-1, descending=True, stable=True)
    among_k = torch.arange(vocab, device=device) < keep[:, None]
    probabilities = ordered.masked_fill(~among_k, float("-inf")).softmax(-1)
    before = probabilities.cumsum(-1) - probabilities
    kept = among_k & (before < mass[:, None])
    cumulative = (probabilities * kept).cumsum(-1)
    target = point[:, None] * cumulative[:, -1:]
    last = kept.sum(-1, keepdim=True) - 1
    chosen = torch.minimum((cumulative <= target).sum(-1, keepdim=True), last)
    return tokens.gather(1, chosen).squeeze(1)


def _penalize(logits: Tensor, rows: Sequence[SampleRow]) -> Tensor:
    """Repetition, presence and frequency penalties, as in vLLM."""
    device, params = logits.device, [row.params for row in rows]
    in_prompt = _counts(logits, [row.prompt_ids for row in rows]) > 0
    counts = _counts(logits, [row.output_ids for row in rows])
    seen = counts > 0
    factor = _upload([p.repetition_penalty for p in params], torch.float32, device)[:, None]
    presence = _upload([p.presence_penalty for p in params], torch.float32, device)[:, None]
    frequency = _upload([p.frequency_penalty for p in params], torch.float32, device)[:, None]
    repeated = torch.where(logits > 0, logits / factor, logits * factor)
    logits = torch.where(in_prompt | seen, repeated, logits)
    return logits - frequency * counts - presence * seen


def _counts(logits: Tensor, ids: Sequence[Sequence[int]]) -> Tensor:
    """How often each token occurs, float32 [R, vocab]; padding counts in a last column."""
    rows, vocab = logits.shape
    longest = max(1, *map(len, ids))
    flat = [token for row in ids for token in (*row, *[vocab] * (longest - len(row)))]
    index = _upload(flat, torch.int64, logits.device).view(rows, longest)
    counts = torch.zeros(rows, vocab + 1, device=logits.device)
    return counts.scatter_add_(1, index, torch.ones_like(index, dtype=torch.float32))[:, :vocab]
