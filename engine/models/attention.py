"""Gated full attention with partial rotary positions over a paged cache."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops
from ..checkpoint import Scope
from ..model_config import ModelConfig
from .step import Step


class GatedAttention:
    """Causal attention whose output is multiplied by a sigmoid gate."""

    def __init__(self, config: ModelConfig, layer: int, scope: Scope) -> None:
        hidden, heads, dim = config.hidden_size, config.num_heads, config.head_dim
        kv_size = config.num_kv_heads * dim
        self._layer, self._heads, self._dim, self._eps = layer, heads, dim, config.rms_norm_eps
        self._query = scope("q_proj.weight", heads * dim * 2, hidden)
        self._key = scope("k_proj.weight", kv_size, hidden)
        self._value = scope("v_proj.weight", kv_size, hidden)
        self._out = scope("o_proj.weight", hidden, heads * dim)
        self._query_norm = scope("q_norm.weight", dim)
        self._key_norm = scope("k_norm.weight", dim)

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        """[T, H] -> [T, H]; stores the tokens' keys and values on the way."""
        tokens, pages = x.shape[0], step.cache.pages(self._layer)
        queries_gates = F.linear(x, self._query).view(tokens, self._heads, 2 * self._dim)
        query, gate = queries_gates.chunk(2, dim=-1)
        key = F.linear(x, self._key).view(tokens, -1, self._dim)
        value = F.linear(x, self._value).view(tokens, -1, self._dim)
        query = ops.rotate(ops.rms_norm(query, self._query_norm, self._eps), step.cos, step.sin)
        key = ops.rotate(ops.rms_norm(key, self._key_norm, self._eps), step.cos, step.sin)
        ops.store_kv(pages, step.kv_slots, key, value)
        outputs = []
        for group, table, mask in zip(step.groups, step.tables, step.masks, strict=True):
            queries = query[group.token_slice].view(group.rows, group.length, self._heads, -1)
            out = ops.paged_attention(queries, pages, table, mask)
            outputs.append(out.reshape(-1, self._heads, self._dim))
        attended = outputs[0] if len(outputs) == 1 else torch.cat(outputs)
        return F.linear((attended * gate.sigmoid()).flatten(1), self._out)
