"""Sampled ids on their way to the host."""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor

from .counters import Counters
from .faults import Faults
from .scheduler import ScheduledStep


class Output(Protocol):
    """What a step sampled, one id per row of ``step`` (E46: the step is an immutable snapshot)."""

    step: ScheduledStep

    def get(self) -> list[int]:
        """Waits for the ids and gives the memory back; once."""

    def peek(self) -> list[int]:
        """Waits for the ids and keeps the memory."""

    def drop(self) -> None:
        """Gives the memory back without reading it."""


class HostOutput:
    """Ids of a device that is the host."""

    def __init__(self, step: ScheduledStep, ids: Tensor) -> None:
        self.step, self._ids = step, ids.tolist()

    def get(self) -> list[int]:
        return list(self._ids)

    def peek(self) -> list[int]:
        return list(self._ids)

    def drop(self) -> None:
        """Nothing to give back."""


class OutputSlot:
    """Device ids, the pinned ids that they are copied to, and the event after that copy."""

    def __init__(self, rows: int, device: torch.device) -> None:
        self.device_ids = torch.zeros(rows, dtype=torch.int64, device=device)
        self.pinned_ids = torch.zeros(rows, dtype=torch.int64, pin_memory=True)
        self.ready = torch.cuda.Event(blocking=True)
        self.in_use = False


class AsyncOutput:
    """Ids that a copy stream brings to the host while MAIN goes on."""

    def __init__(
        self, step: ScheduledStep, slot: OutputSlot, counters: Counters, faults: Faults
    ) -> None:
        self.step, self._slot, self._rows = step, slot, len(step.rows)
        self._counters, self._faults = counters, faults

    def get(self) -> list[int]:
        if not self._faults.hit("E43.skip-wait"):
            self._slot.ready.synchronize()  # E43: HOST-RAW on the pinned ids
        ids: list[int] = self._slot.pinned_ids[: self._rows].tolist()
        self._slot.in_use = False  # E44: only now may another step write this slot
        return ids

    def peek(self) -> list[int]:
        if not self._faults.hit("E47.skip-wait"):
            self._slot.ready.synchronize()  # E47: HOST-RAW on the last ids, needed before output
        ids: list[int] = self._slot.pinned_ids[: self._rows].tolist()
        return ids

    def drop(self) -> None:
        self._counters.wait_free_steps += 1
        if not self._faults.hit("E45.skip-wait"):
            main = torch.cuda.current_stream()
            main.wait_event(self._slot.ready)  # E45: WAR on the device ids; the host goes on
        self._slot.in_use = False


class AsyncOutputPool:
    """Slots that are used again, so that no step allocates; grows if all are in use."""

    def __init__(
        self, slots: int, rows: int, device: torch.device, counters: Counters, faults: Faults
    ) -> None:
        self._rows, self._device, self._counters, self._faults = rows, device, counters, faults
        self._copy_stream = torch.cuda.Stream()
        self._slots: list[OutputSlot] = []
        for _ in range(slots):
            self._grow()

    def send(self, step: ScheduledStep, sampled: Tensor) -> AsyncOutput:
        """Starts the copy of int64 [rows] ids; returns at once."""
        slot = self._acquire()
        ids = slot.device_ids[: sampled.shape[0]]
        ids.copy_(sampled)
        if not self._faults.hit("E42.skip-wait"):
            self._copy_stream.wait_stream(torch.cuda.current_stream())  # E42: RAW on device ids
        with torch.cuda.stream(self._copy_stream):
            slot.pinned_ids[: sampled.shape[0]].copy_(ids, non_blocking=True)
            if not self._faults.hit("E43.skip-record"):
                slot.ready.record()  # E43
        return AsyncOutput(step, slot, self._counters, self._faults)

    def _acquire(self) -> OutputSlot:
        if self._faults.hit("E44.one-slot"):
            return self._slots[0]
        for slot in self._slots:
            if not slot.in_use:
                break
        else:
            slot = self._grow()
        slot.in_use = True
        return slot

    def _grow(self) -> OutputSlot:
        self._slots.append(OutputSlot(self._rows, self._device))
        self._counters.output_slots += 1
        return self._slots[-1]
