"""Who touched which bytes of a memory, as far as a later step can still conflict with it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from .extent import overlap
from .trace import Access, Extent

Seen = tuple[int, Access]


@dataclass(slots=True, eq=False)
class Cell:
    """One extent, who touched it, and the cells that share bytes with it (itself among them)."""

    extent: Extent
    near: list[Cell] = field(default_factory=list)
    reads: dict[int, list[Seen]] = field(default_factory=dict)
    writes: dict[int, list[Seen]] = field(default_factory=dict)

    def forget(self, floor: Sequence[int]) -> bool:
        """Drops what is before ``floor``. Is anything left?"""
        for table in (self.reads, self.writes):
            for agent, seen in list(table.items()):
                if seen[-1][0] < floor[agent]:
                    del table[agent]
        return bool(self.reads or self.writes)


class Memory:
    """The cells of one memory, in buckets by size and place so that neighbours are found fast."""

    __slots__ = ("_buckets", "cells")

    def __init__(self) -> None:
        self.cells: dict[Extent, Cell] = {}
        self._buckets: dict[int, dict[int, list[Cell]]] = {}  # log2 of size -> place -> cells

    def cell(self, extent: Extent) -> Cell:
        found = self.cells.get(extent)
        if found is None:
            found = self.cells[extent] = Cell(extent)
            for other in self._candidates(extent):
                if overlap(extent, other.extent):
                    found.near.append(other)
                    other.near.append(found)
            found.near.append(found)
            level = (extent.stop - extent.start).bit_length()
            places = self._buckets.setdefault(level, {})
            for place in range(extent.start >> level, (max(extent.stop - 1, 0) >> level) + 1):
                places.setdefault(place, []).append(found)
        return found

    def _candidates(self, extent: Extent) -> Iterable[Cell]:
        found: dict[int, Cell] = {}
        for level, places in self._buckets.items():
            low, high = extent.start >> level, extent.stop >> level
            wanted = range(low, high + 1)
            near = wanted if len(wanted) <= len(places) else [p for p in places if p in wanted]
            for place in near:
                for cell in places.get(place, ()):
                    found[id(cell)] = cell
        return found.values()

    def drop(self, cell: Cell) -> None:
        extent = cell.extent
        del self.cells[extent]
        for other in cell.near:
            if other is not cell:
                other.near.remove(cell)
        level = (extent.stop - extent.start).bit_length()
        places = self._buckets[level]
        for place in range(extent.start >> level, (max(extent.stop - 1, 0) >> level) + 1):
            places[place].remove(cell)
            if not places[place]:
                del places[place]

    def forget(self, floor: Sequence[int]) -> None:
        """Drops accesses before ``floor`` (one past the last, by agent), and cells without any."""
        for cell in [*self.cells.values()]:
            if not cell.forget(floor):
                self.drop(cell)
