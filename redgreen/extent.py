"""Whether two extents of one memory share a byte.

Bounding boxes decide most cases. Two strided views of one storage (columns of a matrix, slices of a
cache) can interleave without sharing a byte, so lattices are compared run by run, exactly.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import numpy.typing as npt

from .trace import Extent

# A lattice with more runs than this is not expanded: it counts as its whole bounding box, which may
# report a conflict too many and never one too few.
MAX_RUNS = 1 << 22


def contiguous(extent: Extent) -> bool:
    """Does the extent hold every byte from start to stop? (False may be too careful.)"""
    return not extent.lattice or extent.stop - extent.start == extent.run


def overlap(a: Extent, b: Extent) -> bool:
    """Is there a byte that belongs to both?"""
    if a.start == a.stop or b.start == b.stop or a.start >= b.stop or b.start >= a.stop:
        return False
    if contiguous(a) and contiguous(b):
        return True
    runs_a, runs_b = _expanded(a), _expanded(b)
    if runs_a is None or runs_b is None:
        return True
    (starts_a, length_a), (starts_b, length_b) = runs_a, runs_b
    # The first run of b that ends behind the beginning of each run of a: does it begin before the
    # end of that run? All runs of one extent have one length, so their ends are sorted too.
    nearest = np.searchsorted(starts_b + length_b, starts_a, side="right")
    inside = nearest < len(starts_b)
    return bool(np.any(starts_b[nearest[inside]] < starts_a[inside] + length_a))


def positions(extent: Extent) -> npt.NDArray[np.int64]:
    """The bytes of an extent, one by one; all up to ``stop`` where there are too many runs."""
    found = _expanded(extent)
    if found is None:
        return np.arange(extent.start, extent.stop)
    starts, length = found
    return np.add.outer(starts, np.arange(length)).reshape(-1)


def _expanded(extent: Extent) -> tuple[npt.NDArray[np.int64], int] | None:
    """Sorted starts of the runs and their length, or None where there are too many."""
    if contiguous(extent):
        return np.array([extent.start], dtype=np.int64), extent.stop - extent.start
    offsets, length = _offsets(extent.run, extent.lattice)
    return None if offsets is None else (offsets + extent.start, length)


@lru_cache(maxsize=512)
def _offsets(
    run: int, lattice: tuple[tuple[int, int], ...]
) -> tuple[npt.NDArray[np.int64] | None, int]:
    """Where the runs of a lattice begin, relative to its start; views of one shape share this."""
    while lattice and lattice[-1][1] == run:  # neighbouring runs touch: one longer run
        run *= lattice[-1][0]
        lattice = lattice[:-1]
    offsets = np.zeros(1, dtype=np.int64)
    for count, stride in lattice:
        if len(offsets) * count > MAX_RUNS:
            return None, run
        steps = np.arange(count, dtype=np.int64) * stride
        offsets = np.add.outer(offsets, steps).reshape(-1)
    return np.unique(offsets), run
