"""Gated delta net: a short convolution, then a linear recurrence with a matrix as its state."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops
from ..checkpoint import Scope
from ..inputs import Group
from ..model_config import ModelConfig
from .step import Step


class GatedDeltaNet:
    """Reads and rewrites the whole state slot of each row in every step."""

    def __init__(self, config: ModelConfig, layer: int, scope: Scope) -> None:
        hidden, self._config, self._layer = config.hidden_size, config, layer
        self._qkv = scope("in_proj_qkv.weight", config.conv_size, hidden)
        self._z = scope("in_proj_z.weight", config.value_size, hidden)
        self._b = scope("in_proj_b.weight", config.gdn_value_heads, hidden)
        self._a = scope("in_proj_a.weight", config.gdn_value_heads, hidden)
        self._conv = scope("conv1d.weight", config.conv_size, 1, config.conv_width).squeeze(1)
        self._a_log = scope("A_log", config.gdn_value_heads)
        self._dt_bias = scope("dt_bias", config.gdn_value_heads)
        self._norm = scope("norm.weight", config.gdn_value_dim)
        self._out = scope("out_proj.weight", hidden, config.value_size)

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """[T, H] -> [T, H]; moves the state of each row by its tokens."""
        config, tokens = self._config, x.shape[0]
        mixed = F.linear(x, self._qkv)
        gate = F.linear(x, self._z).view(tokens, -1, config.gdn_value_dim)
        beta, decay = ops.delta_gates(
            F.linear(x, self._b), F.linear(x, self._a), self._a_log, self._dt_bias
        )
        outputs = [self._group(group, mixed, beta, decay, step) for group in step.groups]
        out = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        normed = ops.gated_rms_norm(out.to(x.dtype), gate, self._norm, config.rms_norm_eps)
        return F.linear(normed.flatten(1), self._out)

    def _group(
        self, group: Group, mixed: Tensor, beta: Tensor, decay: Tensor, step: Step
    ) -> Tensor:
        """Float32 [rows * length, Hv, Dv] of one group."""
        config, slots = self._config, step.state_slots[group.row_slice]
        windows, states = step.cache.delta(self._layer)
        mixed = mixed[group.token_slice].view(group.rows, group.length, -1)
        mixed, window = ops.causal_conv(mixed, windows.index_select(0, slots), self._conv)
        windows.index_copy_(0, slots, window)
        query, key, value = mixed.split([config.key_size, config.key_size, config.value_size], -1)
        query, key = ops.delta_heads(
            query.unflatten(-1, (-1, config.gdn_key_dim)),
            key.unflatten(-1, (-1, config.gdn_key_dim)),
            config.gdn_value_heads,
        )
        value = value.unflatten(-1, (-1, config.gdn_value_dim)).float()
        gates = [t[group.token_slice].view(group.rows, group.length, -1) for t in (decay, beta)]
        out, state = ops.delta_rule(
            query, key, value, gates[0], gates[1], states.index_select(0, slots)
        )
        states.index_copy_(0, slots, state)
        return out.flatten(0, 1)
