"""Feed-forward blocks: dense, and sparse with a shared expert beside it."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

from .. import ops
from ..checkpoint import Scope
from ..model_config import ModelConfig, MoEConfig

AUX_TOKENS = 256  # more tokens than this fill the device: a second stream gains nothing


class DenseMLP:
    """SwiGLU."""

    def __init__(self, hidden: int, intermediate: int, scope: Scope) -> None:
        self._gate = scope("gate_proj.weight", intermediate, hidden)
        self._up = scope("up_proj.weight", intermediate, hidden)
        self._down = scope("down_proj.weight", hidden, intermediate)

    def __call__(self, x: Tensor) -> Tensor:
        """[T, H] -> [T, H]."""
        return ops.swiglu(x, self._gate, self._up, self._down)


class SparseMoE:
    """k experts of many for each token, plus a gated expert that all tokens share."""

    def __init__(
        self, config: ModelConfig, moe: MoEConfig, scope: Scope, aux: torch.cuda.Stream | None
    ) -> None:
        hidden = config.hidden_size
        self._experts_per_token, self._aux = moe.experts_per_token, aux
        self._router = scope("gate.weight", moe.num_experts, hidden)
        self._gate_up, self._down = _experts(hidden, moe, scope.under("experts"))
        self._shared = DenseMLP(hidden, moe.shared_intermediate_size, scope.under("shared_expert"))
        self._shared_gate = scope("shared_expert_gate.weight", 1, hidden)

    def __call__(self, x: Tensor) -> Tensor:
        """[T, H] -> [T, H]."""
        if self._aux is None or x.shape[0] > AUX_TOKENS:
            return self._routed(x) + self._shared_expert(x)
        main = torch.cuda.current_stream()
        self._aux.wait_stream(main)  # E37: RAW on the block's input
        with torch.cuda.stream(self._aux):
            # E38: WAR and WAW on scratch: its blocks are AUX's, and AUX waits for MAIN before it
            # takes one again, so what MAIN still reads when the host lets go of it stays whole.
            shared = self._shared_expert(x)
        routed = self._routed(x)
        main.wait_stream(self._aux)  # E37, E39: RAW on the shared output; joins a captured fork
        return routed + shared

    def _routed(self, x: Tensor) -> Tensor:
        experts, weights = ops.route(x, self._router, self._experts_per_token)
        return ops.mix_experts(x, self._gate_up, self._down, experts, weights)

    def _shared_expert(self, x: Tensor) -> Tensor:
        return F.linear(x, self._shared_gate).sigmoid() * self._shared(x)


def _experts(hidden: int, moe: MoEConfig, scope: Scope) -> tuple[Tensor, Tensor]:
    """Weights [E, 2I, H] and [E, H, I]; a checkpoint may have them stacked or one by one."""
    count, size = moe.num_experts, moe.intermediate_size
    if scope.has("gate_up_proj"):
        stacked = scope("gate_up_proj", count, 2 * size, hidden)
        return stacked, scope("down_proj", count, hidden, size)
    gate_up, down = [], []
    for expert in map(scope.under, map(str, range(count))):
        parts = [expert(f"{name}.weight", size, hidden) for name in ("gate_proj", "up_proj")]
        gate_up.append(torch.cat(parts))
        down.append(expert("down_proj.weight", hidden, size))
    return torch.stack(gate_up), torch.stack(down)
