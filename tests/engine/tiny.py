"""Tiny model directories with random weights, in the format of Hugging Face checkpoints."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from torch import Tensor

from engine.model_config import DENSE, MOE, ModelConfig
from engine.models import Qwen35

SMALL: dict[str, Any] = {
    "vocab_size": 64,
    "hidden_size": 16,
    "intermediate_size": 24,
    "num_hidden_layers": 2,
    "layer_types": ["linear_attention", "full_attention"],
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "head_dim": 8,
    "linear_num_key_heads": 1,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
    "linear_conv_kernel_dim": 4,
    "rms_norm_eps": 1e-6,
    "max_position_embeddings": 512,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "dtype": "float32",
    "eos_token_id": 0,
    "rope_parameters": {
        "rope_type": "default",
        "rope_theta": 10000.0,
        "partial_rotary_factor": 0.5,
        "mrope_section": [1, 1, 0],
    },
}
EXPERTS = {
    "num_experts": 6,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 8,
    "shared_expert_intermediate_size": 8,
}


class RandomWeights:
    """Makes up each tensor that a model asks for, and remembers it."""

    def __init__(self, seed: int, scale: float = 0.35) -> None:
        self.tensors: dict[str, Tensor] = {}
        self._generator, self._scale = torch.Generator().manual_seed(seed), scale

    def has(self, name: str) -> bool:
        return True

    def prefix(self) -> str:
        return "model."

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        drawn = torch.randn(shape, generator=self._generator) * self._scale
        if name.endswith("linear_attn.norm.weight"):
            drawn = drawn + 1.0
        self.tensors[name] = drawn
        return drawn


def write_checkpoint(
    directory: Path, kind: str = "dense", *, seed: int = 0, shards: int = 1, **changes: Any
) -> Path:
    """A ``dense`` or ``moe`` checkpoint in ``directory``; ``changes`` go into its config.json."""
    config = {**SMALL, **(EXPERTS if kind == "moe" else {}), **changes}
    config["model_type"] = {"dense": DENSE, "moe": MOE}[kind]
    directory.mkdir(parents=True, exist_ok=True)
    (directory / "config.json").write_text(json.dumps(config))
    weights = RandomWeights(seed)
    parsed = ModelConfig.load(directory)
    Qwen35(parsed, weights, torch.device("cpu"))
    tensors = {name: tensor.to(parsed.dtype) for name, tensor in weights.tensors.items()}
    if shards == 1:
        save_file(tensors, directory / "model.safetensors", {"format": "pt"})
        return directory
    where = {}
    for shard in range(shards):
        file = f"model-{shard + 1:05}-of-{shards:05}.safetensors"
        part = dict(list(tensors.items())[shard::shards])
        save_file(part, directory / file, {"format": "pt"})
        where.update(dict.fromkeys(part, file))
    index = {"metadata": {}, "weight_map": where}
    (directory / "model.safetensors.index.json").write_text(json.dumps(index))
    return directory
