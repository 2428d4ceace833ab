"""The paged KV cache and the state slots: device memory, and who owns which part of it."""

from __future__ import annotations

from collections import deque

import torch
from torch import Tensor

from .model_config import FULL, ModelConfig


class DeviceCache:
    """Pages and states of all layers.

    One page and one state slot more than can be owned: the null ones, which take padding's writes.
    """

    def __init__(
        self, config: ModelConfig, blocks: int, block_size: int, slots: int, device: torch.device
    ) -> None:
        """``blocks`` pages of ``block_size`` tokens and ``slots`` states, zeroed."""
        self.block_size = block_size
        self.null_kv_slot = blocks * block_size
        self.null_state_slot = slots
        self._pages: dict[int, Tensor] = {}
        self._delta: dict[int, tuple[Tensor, Tensor]] = {}
        kv_shape = (2, blocks + 1, block_size, config.num_kv_heads, config.head_dim)
        window_shape = (slots + 1, config.conv_size, config.conv_width - 1)
        state_shape = (slots + 1, config.gdn_value_heads, config.gdn_value_dim, config.gdn_key_dim)
        for layer, kind in enumerate(config.layer_types):
            if kind == FULL:
                self._pages[layer] = torch.zeros(kv_shape, dtype=config.dtype, device=device)
            else:
                window = torch.zeros(window_shape, dtype=config.dtype, device=device)
                state = torch.zeros(state_shape, dtype=torch.float32, device=device)
                self._delta[layer] = window, state

    def pages(self, layer: int) -> Tensor:
        """[2, blocks + 1, block_size, Hkv, D]: keys, then values."""
        return self._pages[layer]

    def delta(self, layer: int) -> tuple[Tensor, Tensor]:
        """Convolution windows [slots + 1, C, K - 1]; float32 states [slots + 1, Hv, Dv, Dk]."""
        return self._delta[layer]

    def reset_state(self, slot: int) -> None:
        """Zeroes a slot for its new owner.

        E53, E56, E60: WAW on the state: the old owner's last write is earlier on this stream, the
        new owner's first read later.
        """
        for window, state in self._delta.values():
            window[slot].zero_()
            state[slot].zero_()

    def owned_bytes(self) -> dict[str, Tensor]:
        """Host copies of everything but the null page and the null slot, by layer."""
        copies = {f"{layer}.kv": pages[:, :-1].cpu() for layer, pages in self._pages.items()}
        for layer, (window, state) in self._delta.items():
            copies[f"{layer}.window"] = window[:-1].cpu()
            copies[f"{layer}.state"] = state[:-1].cpu()
        return copies


class KVCacheManager:
    """Hands out pages and state slots; first freed, first reused."""

    def __init__(self, blocks: int, block_size: int, slots: int) -> None:
        self.block_size = block_size
        self._blocks, self._slots = deque(range(blocks)), deque(range(slots))

    @property
    def free_blocks(self) -> int:
        return len(self._blocks)

    @property
    def free_slots(self) -> int:
        return len(self._slots)

    def missing(self, owned: int, tokens: int) -> int:
        """Pages that an owner of ``owned`` pages needs besides for ``tokens`` tokens."""
        return max(0, -(-tokens // self.block_size) - owned)

    def grow(self, blocks: list[int], tokens: int) -> bool:
        """Appends the pages that ``tokens`` tokens need; False if too few are free."""
        missing = self.missing(len(blocks), tokens)
        if missing > len(self._blocks):
            return False
        blocks.extend(self._blocks.popleft() for _ in range(missing))
        return True

    def take_slot(self) -> int:
        """A state slot; raises IndexError if none is free."""
        return self._slots.popleft()

    def free(self, blocks: list[int], slot: int) -> None:
        """Takes pages and slot back.

        E53: a step in flight may still write them; whoever gets them next writes on the same
        stream, later.
        """
        self._blocks.extend(blocks)
        self._slots.append(slot)
        blocks.clear()
