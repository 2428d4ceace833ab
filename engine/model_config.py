"""The shape of a model, from ``config.json``."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from .errors import CheckpointError

LINEAR, FULL = "linear_attention", "full_attention"
DENSE, MOE = "qwen3_5_text", "qwen3_5_moe_text"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}


@dataclass(frozen=True, slots=True)
class MoEConfig:
    """Sizes of the sparse feed-forward block."""

    num_experts: int
    experts_per_token: int
    intermediate_size: int
    shared_intermediate_size: int


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A Qwen3.5 text model. Head counts and sizes are numbers of heads and of elements."""

    architecture: str
    dtype: torch.dtype
    vocab_size: int
    hidden_size: int
    layer_types: tuple[str, ...]
    num_heads: int
    num_kv_heads: int
    head_dim: int
    rotary_dim: int
    rope_theta: float
    rms_norm_eps: float
    gdn_key_heads: int
    gdn_value_heads: int
    gdn_key_dim: int
    gdn_value_dim: int
    conv_width: int
    intermediate_size: int  # of the dense feed-forward block; 0 with experts
    moe: MoEConfig | None
    tie_word_embeddings: bool
    max_position: int
    eos_token_ids: tuple[int, ...]

    @property
    def key_size(self) -> int:
        """Elements of all keys of a gated delta net."""
        return self.gdn_key_heads * self.gdn_key_dim

    @property
    def value_size(self) -> int:
        """Elements of all values of a gated delta net."""
        return self.gdn_value_heads * self.gdn_value_dim

    @property
    def conv_size(self) -> int:
        """Channels of the convolution: queries, keys, values."""
        return 2 * self.key_size + self.value_size

    def __post_init__(self) -> None:
        """Raises CheckpointError for head counts that do not divide each other."""
        for heads, groups in ((self.num_heads, self.num_kv_heads),
                              (self.gdn_value_heads, self.gdn_key_heads)):  # fmt: skip
            if groups < 1 or heads % groups:
                raise CheckpointError(f"config.json: {heads} heads cannot share {groups} heads")

    @classmethod
    def load(cls, directory: Path) -> ModelConfig:
        """Reads ``config.json`` (and the end tokens of ``generation_config.json``).

        Raises CheckpointError if the file is missing, is not JSON, lacks a key, or describes a
        model that is not a Qwen3.5 text model.
        """
        raw = _json(directory / "config.json")
        text = {**raw, **raw["text_config"]} if "text_config" in raw else raw
        architecture = text.get("model_type")
        if architecture not in (DENSE, MOE):
            raise CheckpointError(
                f"{directory}: model_type is {architecture!r}; the engine runs {DENSE} and {MOE}"
            )
        try:
            return cls._parse(architecture, text, _end_tokens(directory, text))
        except KeyError as missing:
            raise CheckpointError(f"{directory}/config.json has no {missing}") from None

    @classmethod
    def _parse(cls, architecture: str, c: dict[str, Any], eos: tuple[int, ...]) -> ModelConfig:
        rope = c.get("rope_parameters") or c.get("rope_scaling") or {}
        _refuse_unknown(c, rope)
        partial = rope.get("partial_rotary_factor", c.get("partial_rotary_factor", 0.25))
        moe = None
        if architecture == MOE:
            moe = MoEConfig(
                c["num_experts"], c["num_experts_per_tok"], c["moe_intermediate_size"],
                c["shared_expert_intermediate_size"],
            )  # fmt: skip
        return cls(
            architecture=architecture,
            dtype=_dtype(c),
            vocab_size=c["vocab_size"],
            hidden_size=c["hidden_size"],
            layer_types=_layer_types(c),
            num_heads=c["num_attention_heads"],
            num_kv_heads=c["num_key_value_heads"],
            head_dim=c["head_dim"],
            rotary_dim=int(c["head_dim"] * partial),
            rope_theta=float(rope.get("rope_theta", c.get("rope_theta", 10_000_000.0))),
            rms_norm_eps=c["rms_norm_eps"],
            gdn_key_heads=c["linear_num_key_heads"],
            gdn_value_heads=c["linear_num_value_heads"],
            gdn_key_dim=c["linear_key_head_dim"],
            gdn_value_dim=c["linear_value_head_dim"],
            conv_width=c["linear_conv_kernel_dim"],
            intermediate_size=0 if moe else c["intermediate_size"],
            moe=moe,
            tie_word_embeddings=bool(c.get("tie_word_embeddings", False)),
            max_position=c["max_position_embeddings"],
            eos_token_ids=eos,
        )


def _dtype(c: dict[str, Any]) -> torch.dtype:
    """The dtype of the weights; float32, as in transformers, where the file names none."""
    name = c.get("dtype") or c.get("torch_dtype") or "float32"
    if name not in DTYPES:
        raise CheckpointError(f"config.json: dtype {name!r} is not one of {sorted(DTYPES)}")
    return DTYPES[name]


def _json(path: Path) -> dict[str, Any]:
    try:
        parsed = json.loads(path.read_text())
    except FileNotFoundError:
        raise CheckpointError(f"{path} does not exist") from None
    except (OSError, ValueError) as error:
        raise CheckpointError(f"{path} cannot be read as JSON: {error}") from None
    if not isinstance(parsed, dict):
        raise CheckpointError(f"{path} is not a JSON object")
    return parsed


def _layer_types(c: dict[str, Any]) -> tuple[str, ...]:
    interval = c.get("full_attention_interval", 4)
    given = c.get("layer_types") or [
        FULL if (i + 1) % interval == 0 else LINEAR for i in range(c["num_hidden_layers"])
    ]
    unknown = set(given) - {LINEAR, FULL}
    if unknown:
        raise CheckpointError(f"layer_types has {sorted(unknown)}; known: {LINEAR}, {FULL}")
    return tuple(given)


def _refuse_unknown(c: dict[str, Any], rope: dict[str, Any]) -> None:
    """Variants that would load and then compute something else."""
    wrong = {
        "hidden_act": c.get("hidden_act", "silu") != "silu",
        "attention_bias": bool(c.get("attention_bias", False)),
        "rope_type": rope.get("rope_type", "default") != "default",
        "quantization_config": "quantization_config" in c,
    }
    for key, refused in wrong.items():
        if refused:
            raise CheckpointError(f"config.json: the engine does not implement this {key}")


def _end_tokens(directory: Path, text: dict[str, Any]) -> tuple[int, ...]:
    path = directory / "generation_config.json"
    given = _json(path).get("eos_token_id") if path.exists() else None
    given = text.get("eos_token_id") if given is None else given
    if given is None:
        return ()
    return tuple(given) if isinstance(given, list) else (given,)
