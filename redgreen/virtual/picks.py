"""Which bytes an index picks out of a tensor: rows, elements, runs of both.

Works on places, not on tensors: a place says where a tensor lies and keeps nothing alive.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ..trace import Access, Extent
from .extents import extent

if TYPE_CHECKING:
    from .tensor import VirtualTensor

Numbers = npt.NDArray[np.int64]

# A step with more runs than this counts as using its whole tensor. That can report a conflict too
# many, never one too few, and the core resolves a false conflict by running it.
MAX_EXTENTS = 4096


class Place(NamedTuple):
    """Where a strided tensor lies: ``start`` in bytes of the memory, strides in elements."""

    memory: int
    lifetime: int
    start: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int

    @classmethod
    def of(cls, tensor: VirtualTensor) -> Place:
        raw, block = tensor.raw, tensor.block
        size = raw.element_size()
        start = block.start + int(raw.storage_offset()) * size
        return cls(
            block.memory.id, block.allocation, start, tuple(raw.shape), raw.stride(), size
        )

    def accesses(
        self, extents: Sequence[Extent] | None, reads: bool, writes: bool
    ) -> tuple[Access, ...]:
        """An access for each of these extents; None is the whole tensor."""
        if extents is None:
            whole = extent(self.start, self.shape, self.strides, self.itemsize)
            extents = () if whole is None else (whole,)
        return tuple([Access(self.memory, self.lifetime, e, reads, writes) for e in extents])


def picked(
    place: Place, dims: Sequence[int], indices: Sequence[npt.NDArray[Any]]
) -> list[Extent] | None:
    """Bytes at these indices (broadcast together) along ``dims``, all along the other dimensions.

    Negative indices count from the end. None: an index is out of range, or there are too many runs.
    """
    offsets: Any = np.zeros((), np.int64)
    for dim, index in zip(dims, indices, strict=True):
        size = place.shape[dim]
        if index.size and (index.min() < -size or index.max() >= size):
            return None
        index = index.astype(np.int64)
        offsets = offsets + np.where(index < 0, index + size, index) * place.strides[dim]
    others = [d for d in range(len(place.shape)) if d not in dims]
    shape = tuple([place.shape[d] for d in others])
    strides = tuple([place.strides[d] for d in others])
    pitch = min((place.strides[d] for d in dims if place.strides[d]), default=0)
    return runs(place, np.unique(offsets), shape, strides, pitch)


def runs(
    place: Place, offsets: Numbers, shape: tuple[int, ...], strides: tuple[int, ...], pitch: int
) -> list[Extent] | None:
    """Rows of one layout that begin at these offsets (elements, sorted); neighbours melt.

    Rows of one run melt where they touch; rows with gaps melt into a lattice of this pitch.
    """
    row = extent(0, shape, strides, place.itemsize)
    if row is None or not offsets.size:
        return []
    gaps = np.diff(offsets)
    cuts = gaps * place.itemsize > row.run if not row.lattice else gaps != pitch
    ends = np.flatnonzero(np.append(cuts, True))
    if ends.size > MAX_EXTENTS:
        return None
    begins = np.append(0, ends[:-1] + 1)
    found = []
    for begin, end in zip(begins.tolist(), ends.tolist(), strict=True):
        start = place.start + int(offsets[begin]) * place.itemsize
        if not row.lattice:
            length = int(offsets[end] - offsets[begin]) * place.itemsize + row.run
            found.append(Extent(start, start + length, length))
        else:
            count = end - begin + 1
            made = extent(start, (count, *shape), (pitch, *strides), place.itemsize)
            assert made is not None  # no dimension is empty
            found.append(made)
    return found
