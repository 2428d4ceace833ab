"""Ranges of a segment of memory, the lists that an allocator keeps of them, and counters."""

from __future__ import annotations

from bisect import bisect_left, insort
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from .memory import Memory
    from .work import Work

SMALL = 1 << 20  # kSmallSize: requests up to here come from the small pool

# What a chunk is. MARKED: freed, but work of other streams may still use it. UNMAPPED: addresses of
# an expandable segment without memory behind them.
IN_USE, FREE, MARKED, UNMAPPED = range(4)


class Source(Protocol):
    """Where allocators get memory from."""

    def segment(self, size: int, growing: bool = False) -> Memory: ...

    def reserve(self, size: int) -> None:
        """So many bytes more are taken from the driver (less, if negative)."""

    def unmap(self, memory: Memory, low: int, high: int) -> None:
        """The driver takes these bytes back; they come again as fresh memory."""

    def idle(self, stream: int) -> None:
        """Waits for a stream."""


class Chunk:
    """A range of a segment, between its neighbours."""

    __slots__ = ("after", "before", "marks", "memory", "pool", "size", "start", "state")

    def __init__(self, pool: Pool, memory: Memory, start: int, size: int) -> None:
        self.pool, self.memory, self.start, self.size = pool, memory, start, size
        self.state = FREE
        self.before: Chunk | None = None
        self.after: Chunk | None = None
        self.marks: list[Work] = []  # what has to be done before it can be taken

    @property
    def address(self) -> int:
        return self.memory.address + self.start

    def cut(self, size: int) -> Chunk:
        """Keeps its first ``size`` bytes; the rest is a free chunk of its own, in no list."""
        rest = Chunk(self.pool, self.memory, self.start + size, self.size - size)
        rest.before, rest.after = self, self.after
        if rest.after is not None:
            rest.after.before = rest
        self.size, self.after = size, rest
        return rest


def merge(a: Chunk, b: Chunk) -> Chunk:
    """Two neighbours as one chunk, the lower one of them."""
    if b.start < a.start:
        a, b = b, a
    a.size += b.size
    a.after = b.after
    if a.after is not None:
        a.after.before = a
    return a


class Pool:
    """The chunks of one stream, small or large ones."""

    __slots__ = ("chunks", "free", "marked", "small", "unmapped")

    def __init__(self, small: bool) -> None:
        self.small = small
        self.free: list[tuple[int, int]] = []  # (size, address), sorted: BlockComparatorSize
        self.chunks: dict[int, Chunk] = {}  # the free ones, by address
        self.marked: list[Chunk] = []  # in the order in which they were freed
        self.unmapped: dict[int, Chunk] = {}  # by address

    def insert(self, chunk: Chunk) -> None:
        address = chunk.address
        insort(self.free, (chunk.size, address))
        self.chunks[address] = chunk

    def at(self, place: int) -> Chunk:
        return self.chunks[self.free[place][1]]

    def pop(self, place: int) -> Chunk:
        return self.chunks.pop(self.free.pop(place)[1])

    def remove(self, chunk: Chunk) -> None:
        address = chunk.address
        del self.free[bisect_left(self.free, (chunk.size, address))]
        del self.chunks[address]

    def copy(self) -> Pool:
        """Lists of its own, of the same chunks."""
        copy = Pool(self.small)
        copy.free, copy.marked = self.free.copy(), self.marked.copy()
        copy.chunks, copy.unmapped = self.chunks.copy(), self.unmapped.copy()
        return copy

    def all_free(self) -> list[Chunk]:
        return list(self.chunks.values())


class Usage:
    """Bytes of all device memory, or of all pinned memory."""

    __slots__ = ("allocated", "peak", "reserved", "reserved_peak")

    def __init__(self) -> None:
        self.allocated = self.peak = self.reserved = self.reserved_peak = 0

    def reserve(self, size: int) -> None:
        self.reserved += size
        self.reserved_peak = max(self.reserved_peak, self.reserved)

    def reset_peaks(self) -> None:
        self.peak, self.reserved_peak = self.allocated, self.reserved
