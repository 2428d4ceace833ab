"""The models against transformers: logits, formats of checkpoints, the real sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from engine.checkpoint import Checkpoint
from engine.inputs import Group, StepInputs, StepTensors
from engine.kv_cache import DeviceCache
from engine.model_config import FULL, ModelConfig
from engine.models import Qwen35
from tests.engine import oracle
from tests.engine.corpus import prompt_ids
from tests.engine.harness import prompts
from tests.engine.tiny import write_checkpoint

CPU = torch.device("cpu")
IDS = prompts(1, longest=1)[0] + prompts(1, longest=99, seed=5)[0] * 3
ROUNDING = 1e-4  # absolute, of logits up to 40 in float32 whose sums run in another order


def load(directory: Path) -> Qwen35:
    config = ModelConfig.load(directory)
    return Qwen35(config, Checkpoint(directory, CPU, config.dtype), CPU)


@torch.inference_mode()
def last_logits(model: Qwen35, ids: list[int], chunks: list[int]) -> list[Tensor]:
    """Logits after each chunk of a prompt."""
    block, slot, done, found = 4, 1, 0, []
    cache = DeviceCache(model.config, -(-len(ids) // block), block, 2, CPU)
    for size in chunks:
        part = range(done, done + size)
        inputs = StepInputs(
            ids[done : done + size], part, part, [range(-(-len(ids) // block))], [done + size],
            [slot], (Group(0, 1, 0, size),), carried=0,
        )  # fmt: skip
        tensors = StepTensors.empty(size, 1, inputs.columns, device=CPU, pinned=False)
        inputs.write(tensors)
        hidden = model.embed(torch.tensor(inputs.ids))
        found.append(model(hidden, tensors, inputs.groups, cache)[0])
        done += size
    return found


@pytest.mark.parametrize("chunks", [[len(IDS)], [1, 2, 3, len(IDS) - 6], [1] * len(IDS)],
                         ids=["whole", "chunks", "token by token"])  # fmt: skip
def test_logits_are_those_of_transformers(model: Path, chunks: list[int]) -> None:
    expected = oracle.logits(oracle.load(model), IDS)
    found = last_logits(load(model), IDS, chunks)
    after, position = [], -1
    for size in chunks:
        position += size
        after.append(expected[position])
    torch.testing.assert_close(torch.stack(found), torch.stack(after), rtol=0, atol=ROUNDING)


def test_logits_of_the_trained_checkpoints_are_those_of_transformers(trained: Path) -> None:
    reference, ours = oracle.load(trained), load(trained)
    for ids in prompt_ids(trained):
        (found,) = last_logits(ours, ids, [len(ids)])
        expected = oracle.logits(reference, ids)[-1]
        torch.testing.assert_close(found, expected, rtol=0, atol=ROUNDING)


def test_bfloat16_is_within_its_own_rounding(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, "moe", dtype="bfloat16")
    model = load(directory)
    assert model.config.dtype is torch.bfloat16
    (found,) = last_logits(model, IDS[:40], [40])
    exact = oracle.logits(oracle.load(directory, torch.float32), IDS[:40])[-1]
    theirs = oracle.logits(oracle.load(directory, torch.bfloat16), IDS[:40])[-1]
    assert (found - exact).abs().max() <= 2 * (theirs - exact).abs().max()


def test_shards_are_one_model(model: Path, tmp_path: Path) -> None:
    kind = "moe" if ModelConfig.load(model).moe else "dense"
    sharded = write_checkpoint(tmp_path, kind, shards=3)
    assert not (sharded / "model.safetensors").exists()
    whole, parts = last_logits(load(model), IDS, [9]), last_logits(load(sharded), IDS, [9])
    assert torch.equal(whole[0], parts[0])


def test_what_transformers_saves_is_read(model: Path, tmp_path: Path) -> None:
    """With experts it writes one tensor each, not stacked ones."""
    oracle.load(model).save_pretrained(tmp_path)
    ours, theirs = last_logits(load(model), IDS, [9]), last_logits(load(tmp_path), IDS, [9])
    assert torch.equal(ours[0], theirs[0])


def test_tied_embeddings(tmp_path: Path) -> None:
    directory = write_checkpoint(tmp_path, tie_word_embeddings=True)
    (found,) = last_logits(load(directory), IDS, [len(IDS)])
    expected = oracle.logits(oracle.load(directory), IDS)[-1]
    torch.testing.assert_close(found, expected, rtol=0, atol=ROUNDING)


SIZES: dict[str, dict[str, Any]] = {
    "27B dense": {
        "model_type": "qwen3_5_text", "hidden_size": 5120, "num_hidden_layers": 64,
        "num_attention_heads": 24, "num_key_value_heads": 4, "linear_num_value_heads": 48,
        "intermediate_size": 17408,
    },
    "35B-A3B": {
        "model_type": "qwen3_5_moe_text", "hidden_size": 2048, "num_hidden_layers": 40,
        "num_attention_heads": 16, "num_key_value_heads": 2, "linear_num_value_heads": 32,
        "num_experts": 256, "num_experts_per_tok": 8, "moe_intermediate_size": 512,
        "shared_expert_intermediate_size": 512,
    },
}  # fmt: skip
SHARED = {
    "vocab_size": 248320, "head_dim": 256, "linear_num_key_heads": 16, "linear_key_head_dim": 128,
    "linear_value_head_dim": 128, "linear_conv_kernel_dim": 4, "rms_norm_eps": 1e-6,
    "max_position_embeddings": 262144, "dtype": "bfloat16", "full_attention_interval": 4,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e7, "partial_rotary_factor": 0.25},
}  # fmt: skip
PARAMETERS = {"27B dense": 26.9e9, "35B-A3B": 34.7e9}


class ShapesOnly:
    """Tensors without memory, to see which ones a configuration asks for."""

    def __init__(self) -> None:
        self.elements = 0

    def has(self, name: str) -> bool:
        return True

    def prefix(self) -> str:
        return "model."

    def tensor(self, name: str, shape: tuple[int, ...]) -> Tensor:
        made = torch.empty(shape, device="meta", dtype=torch.bfloat16)
        self.elements += made.numel()
        return made


@pytest.mark.parametrize("name", SIZES)
def test_the_real_sizes_are_configurations_like_any_other(name: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps({"text_config": SHARED | SIZES[name]}))
    config, weights = ModelConfig.load(tmp_path), ShapesOnly()
    meta = torch.device("meta")
    model = Qwen35(config, weights, meta)
    assert weights.elements == pytest.approx(PARAMETERS[name], rel=0.01)
    assert [i for i, kind in enumerate(config.layer_types[:8]) if kind == FULL] == [3, 7]
    cache = DeviceCache(config, 8, 16, 2, meta)
    tensors = StepTensors.empty(2, 2, 4, device=meta, pinned=False)
    hidden = model.embed(torch.zeros(2, dtype=torch.int64, device=meta))
    assert model(hidden, tensors, (Group(0, 2, 0, 1),), cache).shape == (2, 248320)
