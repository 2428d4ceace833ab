"""Checks of every device step, byte by byte, that it does what its accesses say and nothing else.

A step may change no byte outside of its writes, and what it writes may depend on no byte outside of
its reads: run again from memory that is scrambled everywhere else, it must write the same.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from redgreen.trace import Access, Extent
from redgreen.virtual import VirtualGPU
from redgreen.virtual.work import Work

Bytes = npt.NDArray[np.uint8]


def members(extent: Extent) -> set[int]:
    """All bytes of an extent, straight from its definition."""
    starts = [extent.start]
    for count, stride in extent.lattice:
        starts = [s + i * stride for s in starts for i in range(count)]
    return {s + i for s in starts for i in range(extent.run)}


def mask(size: int, extents: list[Extent]) -> npt.NDArray[np.bool_]:
    """Which of a memory's bytes belong to any of the extents."""
    found = np.zeros(size, bool)
    for extent in extents:
        starts = np.array([extent.start])
        for count, stride in extent.lattice:
            starts = np.add.outer(starts, np.arange(count) * stride).reshape(-1)
        for byte in range(extent.run) if extent.lattice else ():
            found[starts + byte] = True
        if not extent.lattice:
            found[extent.start : extent.start + extent.run] = True
    return found


class Audit:
    """Watches one virtual GPU; ``findings`` says which step did what it should not."""

    def __init__(self, virtual: VirtualGPU) -> None:
        self.findings: list[str] = []
        self.steps = 0
        self._memory = virtual.gpu.memory
        machine = virtual.gpu.machine
        self._execute: Callable[[Work], None] = machine._execute
        machine._execute = self._audited  # type: ignore[method-assign]

    def _audited(self, work: Work) -> None:
        run = work.run
        if run is None:
            self._execute(work)
            return
        self.steps += 1
        before = self._bytes()
        self._execute(work)
        after = self._bytes()
        for id, (old, new) in enumerate(zip(before, after, strict=True)):
            outside = ~self._mask(id, work.accesses, writes=True) & (old != new)
            if outside.any():
                self.findings.append(f"{work.op} writes {np.flatnonzero(outside)[:8]} of {id}")
        self._rerun(work, run, before, after)

    def _rerun(
        self, work: Work, run: Callable[[Work], Any], before: list[Bytes], after: list[Bytes]
    ) -> None:
        for memory, old in zip(self._memory.memories, before, strict=True):
            read = self._mask(memory.id, work.accesses, writes=False)
            memory.buffer[: memory.used] = np.where(read, old, old ^ 0x5A)
        try:
            run(Work(work.agent, work.issuer, work.kind, work.op, work.site))
        except Exception as error:
            self.findings.append(f"{work.op} reads more than it says: {error}")
        for memory, new in zip(self._memory.memories, after, strict=True):
            written = self._mask(memory.id, work.accesses, writes=True)
            differ = written & (memory.buffer[: memory.used] != new)
            if differ.any():
                self.findings.append(
                    f"{work.op}: {np.flatnonzero(differ)[:8]} of {memory.id} depend on more than "
                    "it reads"
                )
            memory.buffer[: memory.used] = new

    def _bytes(self) -> list[Bytes]:
        return [m.buffer[: m.used].copy() for m in self._memory.memories]

    def _mask(
        self, id: int, accesses: tuple[Access, ...], writes: bool
    ) -> npt.NDArray[np.bool_]:
        size = self._memory.memories[id].used
        wanted = [a.extent for a in accesses if a.memory == id]
        if writes:
            wanted = [a.extent for a in accesses if a.memory == id and a.writes]
        else:
            wanted = [a.extent for a in accesses if a.memory == id and a.reads]
        return mask(size, wanted)
