"""The last sampled id of each row: where the next step's decode rows get their tokens."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from .faults import Faults


class Mirror(Protocol):
    """One id per row of the input batch."""

    def move_rows(self, sources: list[int]) -> None:
        """Row i takes what row ``sources[i]`` has."""

    def carried_ids(self, rows: int) -> list[int]:
        """Ids of the first rows for the host to write into the step's inputs."""

    def combine(self, ids: Tensor, rows: int) -> None:
        """Puts the ids of the first rows over the beginning of device ``ids``."""

    def scatter(self, sampled: Tensor) -> None:
        """Takes the ids that a step sampled for the first rows, int64 [rows]."""


class DeviceMirror:
    """The ids never leave the device: host placeholders are zeros, and decoding those is E19."""

    def __init__(self, rows: int, device: torch.device, faults: Faults) -> None:
        self._last_sampled = torch.zeros(rows, dtype=torch.int64, device=device)
        self._faults = faults

    def move_rows(self, sources: list[int]) -> None:
        """E03: RAW and WAW on row identity; MAIN runs scatter, moves and combine in this order."""
        if self._faults.hit("E03.skip-row-moves"):
            return
        # E21: WAR on a temporary. It is pageable, so the copy has read it when the call returns.
        index = torch.tensor(sources).to(self._last_sampled.device, non_blocking=True)
        self._last_sampled[: len(sources)] = self._last_sampled.index_select(0, index)

    def carried_ids(self, rows: int) -> list[int]:
        return [0] * rows

    def combine(self, ids: Tensor, rows: int) -> None:
        """E01, E18: RAW on the sampled ids; the scatter is earlier on this stream."""
        if rows and not self._faults.hit("E01.combine-host-ids"):
            ids[:rows].copy_(self._last_sampled[:rows])

    def scatter(self, sampled: Tensor) -> None:
        """E01: WAR too: the combine of this step has read what is overwritten. E20: steps that are
        read at once scatter as well, or the next one would find old ids."""
        self._last_sampled[: sampled.shape[0]].copy_(sampled)


class HostMirror:
    """The ids come to the host after each step, so the host waits for the step to read them."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self._copies = torch.zeros(rows, dtype=torch.int64, pin_memory=device.type == "cuda")
        self._ids = [0] * rows
        self._arrived = 0

    def collect(self) -> None:
        """Reads what the last scatter copied; the caller has waited for MAIN (E05)."""
        self._ids[: self._arrived] = self._copies[: self._arrived].tolist()
        self._arrived = 0

    def move_rows(self, sources: list[int]) -> None:
        self._ids[: len(sources)] = [self._ids[source] for source in sources]

    def carried_ids(self, rows: int) -> list[int]:
        return self._ids[:rows]

    def combine(self, ids: Tensor, rows: int) -> None:
        """Nothing: the host has written the ids."""

    def scatter(self, sampled: Tensor) -> None:
        self._arrived = sampled.shape[0]
        self._copies[: self._arrived].copy_(sampled, non_blocking=True)
