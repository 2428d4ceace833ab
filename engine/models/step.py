"""What all layers of one forward pass share, computed once from the step's inputs."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from .. import ops
from ..inputs import Group, StepTensors
from ..kv_cache import DeviceCache
from ..model_config import ModelConfig


@dataclass(frozen=True, slots=True)
class Step:
    """Indices, rotations and masks of a step of T tokens in R rows."""

    groups: tuple[Group, ...]
    cache: DeviceCache
    cos: Tensor  # [T, 1, rotary_dim / 2]
    sin: Tensor
    kv_slots: Tensor  # int64 [T], padding replaced by the null row
    state_slots: Tensor  # int64 [R], padding replaced by the null slot
    tables: tuple[Tensor, ...]  # int32 [rows, columns] per group
    masks: tuple[Tensor, ...]  # bool [rows, 1, length, context] per group

    @classmethod
    def make(
        cls, inputs: StepTensors, groups: tuple[Group, ...], cache: DeviceCache,
        config: ModelConfig, frequencies: Tensor,
    ) -> Step:  # fmt: skip
        cos, sin = ops.rotary_tables(inputs.positions, frequencies, config.dtype)
        context = inputs.block_table.shape[1] * cache.block_size
        return cls(
            groups, cache, cos, sin,
            ops.real_index(inputs.slot_mapping, cache.null_kv_slot),
            ops.real_index(inputs.state_slots, cache.null_state_slot),
            tuple(inputs.block_table[group.row_slice] for group in groups),
            tuple(ops.visible(inputs.seq_lens[g.row_slice], g.length, context) for g in groups),
        )  # fmt: skip
