"""Pools of device memory, so that what lives long never takes what a capture needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch


class MemoryScope:
    """A private pool; allocations inside `active` come from it and return to it."""

    def __init__(self) -> None:
        self._pool = torch.cuda.MemPool()

    @property
    def id(self) -> Any:
        """What a capture into this pool names it by."""
        return self._pool.id

    @contextmanager
    def active(self) -> Iterator[None]:
        with torch.cuda.use_mem_pool(self._pool):
            yield


class PersistentDecodeInputPool(MemoryScope):
    """Device inputs of graph slots.

    E26: they are held for a slot's life. From the graphs' pool they would take the blocks that the
    cold pass left there for the capture, and the capture would have to ask the driver.
    """


class GraphPool(MemoryScope):
    """Scratch and outputs of all decode graphs.

    E25: a cold pass runs in it, so the capture finds its blocks. E27, E30: nobody outside the
    graphs keeps a block of it, and a graph's logits are held as long as the graph. E31: WAW on
    shared scratch; graphs replay one after another on MAIN.
    """

    def __init__(self) -> None:
        """Captures a graph that stays: torch forgets a pool's host side with its last graph, and
        then refuses captures into it."""
        super().__init__()
        self._anchor = torch.cuda.CUDAGraph()
        self._anchor.capture_begin(pool=self.id, capture_error_mode="thread_local")
        torch.zeros(1, device="cuda")
        self._anchor.capture_end()
