"""transformers' own models: what the engine must compute."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from torch import Tensor

from engine.model_config import MOE, ModelConfig

CLASSES = {False: transformers.Qwen3_5ForCausalLM, True: transformers.Qwen3_5MoeForCausalLM}


def load(directory: Path, dtype: torch.dtype = torch.float32) -> Any:
    """The model of a directory, in eager attention."""
    experts = ModelConfig.load(directory).architecture == MOE
    loaded = CLASSES[experts].from_pretrained(
        directory, dtype=dtype, attn_implementation="eager", experts_implementation="eager"
    )
    return loaded.eval()


@torch.inference_mode()
def logits(model: Any, ids: Sequence[int]) -> Tensor:
    """Float32 [T, vocab] of a sequence in one forward pass."""
    return model(torch.tensor([list(ids)])).logits[0].float()


def greedy_disagreements(model: Any, prompt: Sequence[int], output: Sequence[int]) -> list[str]:
    """Where ``output`` is not what greedy decoding of ``prompt`` gives.

    Every token is checked against the argmax after the tokens before it: if all agree, then by
    induction greedy decoding gives exactly ``output``.
    """
    scores = logits(model, [*prompt, *output])[len(prompt) - 1 : -1]
    return [
        f"token {i}: {got}, transformers {best} ({row[best] - row[got]:.2g} above)"
        for i, (row, got, best) in enumerate(
            zip(scores, output, scores.argmax(-1).tolist(), strict=True)
        )
        if got != best
    ]
