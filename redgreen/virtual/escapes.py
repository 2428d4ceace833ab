"""Pinned memory whose host accesses cannot all be seen, and nets for the writes among them.

A block escapes when its address leaves (``data_ptr``, DLPack, ctypes, a plain NumPy view): nothing
tells when the host uses it. An array that is handed out is no escape yet, because NumPy's functions
are followed; but C code can take the pointer out of it. Such a block is only suspected.

The nets compare bytes: those that changed without a recorded write were written unseen. One looks
at the source of an asynchronous upload, from the call to its execution; the other at a suspected
block, from the moment when it was handed out to its end. It then escapes after all.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ..trace import Extent
from .gpu import GPU, gpu, if_installed
from .machine import Machine
from .memory import Block, Memory
from .tensor import PinnedTensor, VirtualTensor

NET = 1 << 20  # bytes of a suspected block that are compared; who writes it all is found by less


def escape(block: Block, how: str) -> None:
    """The block's host accesses can no longer all be seen. Says so in the trace, once per place."""
    block.exposed = True
    g = if_installed()
    if g is not None and block.memory.pinned:
        block.heap.handed_out[block.allocation] = _nothing
        _say(g.machine.trace.escapes, f"pinned {block.nbytes} B by {how} at {_place(g)}")


def hand_out(block: Block) -> None:
    """An array over the block goes to the program."""
    block.exposed = True
    g = if_installed()
    watched = block.heap.handed_out
    if g is None or g.machine is not block.heap.machine or block.allocation in watched:
        return
    escapes, where = g.machine.trace.escapes, _place(g)
    suspect = f"pinned {block.nbytes} B through the array handed out at {where}"
    _say(g.machine.trace.suspects, suspect)
    before = Snapshot(g.machine, block.memory, block.start, min(block.nbytes, NET))
    text = f"pinned {block.nbytes} B by C code with the array handed out at {where}"

    def look() -> None:  # does not hold the block
        if before.unseen():
            _say(escapes, text)

    watched[block.allocation] = look


def _nothing() -> None:
    """There is no use in looking: the block has escaped already."""


def _place(g: GPU) -> str:
    site = g.machine.sites.sites[g.machine.sites.here()]
    return f"{site.file}:{site.line}"


def _say(texts: list[str], text: str) -> None:
    if text not in texts:
        texts.append(text)


def read_on_host(tensor: VirtualTensor, what: str) -> None:
    """The host reads the whole tensor, now."""
    gpu().machine.host_access(what, tensor.access(True, False))


class Snapshot:
    """Bytes of a memory as they are now, to find those that change without a recorded write."""

    def __init__(self, machine: Machine, memory: Memory, start: int, size: int) -> None:
        self._machine, self._memory = machine, memory
        self._range = slice(start, start + size)
        self._before = memory.buffer[self._range].copy()
        self._mark = len(machine.execution)

    def unseen(self) -> int:
        """How many bytes changed unseen."""
        now = self._memory.buffer[self._range]
        if np.array_equal(now, self._before):
            return 0
        changed = np.zeros(self._memory.size, np.bool_)
        changed[self._range] = now != self._before
        for index in self._machine.execution[self._mark :]:
            for access in self._machine.works[index].accesses:
                if access.memory == self._memory.id and access.writes:
                    _points(changed, access.extent)[...] = False
        return int(changed.sum())


def watch(g: GPU, source: PinnedTensor, site: int) -> Callable[[], None] | None:
    """To be called when the upload of ``source`` executes; None where nobody has an address."""
    if not source.block.exposed:
        return None
    found = source.access(True, False)
    if not found:
        return None
    machine, extent = g.machine, found[0].extent  # without holes: `copies` sees to that
    before = Snapshot(machine, source.block.memory, extent.start, extent.stop - extent.start)

    def check() -> None:
        unseen = before.unseen()
        if unseen:
            machine.note(
                "untracked-host-write", site,
                f"{unseen} B of the pinned source changed between this copy's call and "
                "its execution, and no recorded host access wrote them",
            )  # fmt: skip

    return check


def _points(mask: npt.NDArray[np.bool_], extent: Extent) -> npt.NDArray[np.bool_]:
    """A view of the mask's bytes that belong to the extent."""
    shape = (*(count for count, _ in extent.lattice), extent.run)
    strides = (*(stride for _, stride in extent.lattice), 1)
    return np.lib.stride_tricks.as_strided(mask[extent.start :], shape, strides)
