"""Pinned memory whose host accesses cannot all be seen, and a net for the writes among them.

A block escapes when its address leaves (``data_ptr``, DLPack, ctypes, a plain NumPy view): nothing
tells when the host uses it. The net compares the source of an asynchronous upload at the call with
the source at its execution: bytes that changed without a recorded write were written unseen.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import torch

from ..trace import Extent
from .gpu import GPU, gpu, if_installed
from .memory import Block
from .tensor import PinnedTensor, VirtualTensor
from .unwrapping import internals


def escape(block: Block, how: str) -> None:
    """The block's host accesses can no longer all be seen. Says so in the trace, once per place."""
    block.exposed = True
    g = if_installed()
    if g is None or not block.memory.pinned:
        return
    machine = g.machine
    site = machine.sites.sites[machine.sites.here()]
    text = f"pinned {block.nbytes} B by {how} at {site.file}:{site.line}"
    if text not in machine.trace.escapes:
        machine.trace.escapes.append(text)


def read_on_host(tensor: VirtualTensor, what: str) -> None:
    """The host reads the whole tensor, now."""
    gpu().machine.host_access(what, tensor.access(True, False))


def watch(g: GPU, source: PinnedTensor, site: int) -> Callable[[], None] | None:
    """To be called when the upload of ``source`` executes; None where nobody has an address."""
    if not source.block.exposed:
        return None
    machine, memory = g.machine, source.block.memory
    found = source.access(True, False)
    if not found:
        return None
    extent, raw = found[0].extent, source.raw
    with internals():
        before = raw.clone()
    mark = len(machine.execution)

    def check() -> None:
        if torch.equal(_bytes(before), _bytes(raw)):
            return
        unseen = _changed(extent, raw, before, memory.size)
        for index in machine.execution[mark:]:
            for access in machine.works[index].accesses:
                if access.memory == memory.id and access.writes:
                    _points(unseen, access.extent)[...] = False
        if unseen.any():
            machine.note(
                "untracked-host-write", site,
                f"{int(unseen.sum())} B of the pinned source changed between this copy's call and "
                "its execution, and no recorded host access wrote them",
            )  # fmt: skip

    return check


def _bytes(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.contiguous().view(-1).view(torch.uint8)


def _points(mask: npt.NDArray[np.bool_], extent: Extent) -> npt.NDArray[np.bool_]:
    """A view of the mask's bytes that belong to the extent."""
    shape = (*(count for count, _ in extent.lattice), extent.run)
    strides = (*(stride for _, stride in extent.lattice), 1)
    return np.lib.stride_tricks.as_strided(mask[extent.start :], shape, strides)


def _changed(
    extent: Extent, raw: torch.Tensor, before: torch.Tensor, size: int
) -> npt.NDArray[np.bool_]:
    """Which bytes of the memory differ: the tensor's own layout, laid over a mask."""
    mask = np.zeros(size, np.bool_)
    item = raw.element_size()
    shape = (*raw.shape, item)
    strides = (*(s * item for s in raw.stride()), 1)
    view = np.lib.stride_tricks.as_strided(mask[extent.start :], shape, strides)
    differ = (_bytes(raw) != _bytes(before)).numpy().reshape(shape)
    view[...] = differ
    return mask
