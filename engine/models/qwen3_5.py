"""The Qwen3.5 text model: token ids to logits."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops
from ..checkpoint import Scope, Weights
from ..inputs import Group, StepTensors
from ..kv_cache import DeviceCache
from ..model_config import FULL, ModelConfig
from .attention import GatedAttention
from .delta_net import GatedDeltaNet
from .feed_forward import DenseMLP, SparseMoE
from .step import Step


class Layer:
    """x + mixer(norm(x)), then x + feed_forward(norm(x))."""

    def __init__(
        self, config: ModelConfig, index: int, scope: Scope, aux: torch.cuda.Stream | None
    ) -> None:
        hidden, mlp = config.hidden_size, scope.under("mlp")
        self._eps = config.rms_norm_eps
        self._mixer_norm = scope("input_layernorm.weight", hidden)
        self._mlp_norm = scope("post_attention_layernorm.weight", hidden)
        self._mixer: GatedAttention | GatedDeltaNet
        if config.layer_types[index] == FULL:
            self._mixer = GatedAttention(config, index, scope.under("self_attn"))
        else:
            self._mixer = GatedDeltaNet(config, index, scope.under("linear_attn"))
        self._mlp: DenseMLP | SparseMoE
        if config.moe is None:
            self._mlp = DenseMLP(hidden, config.intermediate_size, mlp)
        else:
            self._mlp = SparseMoE(config, config.moe, mlp, aux)

    def __call__(self, x: Tensor, step: Step) -> Tensor:
        x = x + self._mixer(ops.rms_norm(x, self._mixer_norm, self._eps), step)
        return x + self._mlp(ops.rms_norm(x, self._mlp_norm, self._eps))


class Qwen35:
    """Dense or with experts, by its configuration."""

    def __init__(
        self, config: ModelConfig, weights: Weights, device: torch.device,
        aux: torch.cuda.Stream | None = None,
    ) -> None:  # fmt: skip
        """Reads every tensor; raises CheckpointError. ``aux`` runs shared experts, if given."""
        self.config = config
        scope = Scope(weights, weights.prefix())
        layers = scope.under("layers")
        self._embedding = scope("embed_tokens.weight", config.vocab_size, config.hidden_size)
        self._layers = [
            Layer(config, i, layers.under(str(i)), aux) for i in range(len(config.layer_types))
        ]
        self._norm = scope("norm.weight", config.hidden_size)
        self._head = self._embedding
        if not config.tie_word_embeddings:
            self._head = weights.tensor("lm_head.weight", tuple(self._embedding.shape))
        self._frequencies = ops.rotary_frequencies(config.rotary_dim, config.rope_theta, device)

    def embed(self, ids: Tensor) -> Tensor:
        """[T, H] of int64 ids [T]."""
        return F.embedding(ids, self._embedding)

    def __call__(
        self, hidden: Tensor, inputs: StepTensors, groups: tuple[Group, ...], cache: DeviceCache
    ) -> Tensor:
        """Float32 logits [R, vocab] of each row's last token; ``hidden`` [T, H] is not changed."""
        step = Step.make(inputs, groups, cache, self.config, self._frequencies)
        for layer in self._layers:
            hidden = layer(hidden, step)
        last = [hidden[g.token_slice].view(g.rows, g.length, -1)[:, -1] for g in groups]
        rows = last[0] if len(last) == 1 else torch.cat(last)
        rows = ops.rms_norm(rows, self._norm, self.config.rms_norm_eps)
        return F.linear(rows, self._head).float()
