"""Steps that no decode graph takes: prompts, mixed steps, and everything on the CPU."""

from __future__ import annotations

from torch import Tensor

from .config import EngineConfig
from .counters import Counters
from .inputs import StepInputs, StepTensors
from .kv_cache import DeviceCache
from .models import Qwen35


class EagerForward:
    """Refills one set of persistent inputs, so the step before must have read them (E06)."""

    def __init__(
        self, model: Qwen35, cache: DeviceCache, config: EngineConfig, counters: Counters
    ) -> None:
        self._model, self._cache, self._counters = model, cache, counters
        tokens, rows = config.max_num_batched_tokens, config.max_num_seqs
        columns, device = config.max_columns, config.torch_device
        self._device = StepTensors.empty(tokens, rows, columns, device=device, pinned=False)
        self._host = self._device
        if device.type == "cuda":
            self._host = StepTensors.empty(tokens, rows, columns, device="cpu", pinned=True)

    def run(self, inputs: StepInputs, hidden: Tensor) -> Tensor:
        """Float32 logits [R, vocab] that the caller owns; ``hidden`` [T, H] is the embedded ids."""
        shape = inputs.tokens, inputs.rows, inputs.columns
        host, device = self._host.part(*shape), self._device.part(*shape)
        inputs.write(host)
        if self._host is not self._device:
            for target, source in zip(device.cells(), host.cells(), strict=True):
                target.copy_(source, non_blocking=True)
        self._counters.eager_steps += 1
        return self._model(hidden, device, inputs.groups, self._cache)
