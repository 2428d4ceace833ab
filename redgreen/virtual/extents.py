"""Which bytes a strided tensor covers."""

from __future__ import annotations

from functools import lru_cache

from ..trace import Extent


@lru_cache(maxsize=65536)
def extent(
    start: int, shape: tuple[int, ...], strides: tuple[int, ...], itemsize: int
) -> Extent | None:
    """Bytes of a tensor whose first element is at byte ``start``; strides in elements.

    Dimensions that continue each other melt into one run; a dimension whose steps overlap the run
    (as_strided windows) melts as well, which is exact: windows that overlap leave no gap.
    """
    if 0 in shape:
        return None
    dims = sorted(
        (stride * itemsize, count)
        for count, stride in zip(shape, strides, strict=True)
        if count > 1 and stride != 0
    )
    run = itemsize
    lattice: list[tuple[int, int]] = []
    for stride, count in dims:
        if not lattice and stride <= run:
            run += stride * (count - 1)
        else:
            lattice.append((count, stride))
    lattice.reverse()
    stop = start + run + sum((count - 1) * stride for count, stride in lattice)
    return Extent(start, stop, run, tuple(lattice))
