"""torch's caching allocator of device memory. With expandable segments: see `expandable`.

CUDACachingAllocator.cpp: requests are rounded up to 512 bytes. Up to 1 MiB they come from the small
pool, larger ones from the large pool, and each stream has its own of either. Of the free blocks the
smallest that fits is taken, of equal ones the one with the lowest address (BlockComparatorSize). It
is split, its front is used. A freed block merges at once with free neighbours of its segment.

Design rule 6: nothing of that waits for the device. A freed block may be taken while its work is
still queued, also that of other streams; `record_stream` puts that off. Such a block has marks, and
is no candidate and no neighbour until all are done; torch looks (process_events) at each
allocation. Here only marks are asked about whose answer decides where the allocation goes (see
`reuse`): each is a choice of the device's progress, and other answers would change nothing.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from .chunks import FREE, IN_USE, MARKED, SMALL, Chunk, Pool, Source, merge
from .reuse import Place, deciding
from .work import Work

if TYPE_CHECKING:
    from .memory import Block

MIB = 1 << 20
SMALL_SEGMENT = 2 * MIB  # kSmallBuffer
LARGE_SEGMENT = 20 * MIB  # kLargeBuffer
OWN_SEGMENT = 10 * MIB  # kMinLargeAlloc: from here on a segment is as large as its request,
ROUND_SEGMENT = 2 * MIB  # rounded up to this (kRoundLarge)
MIN_BLOCK = 512  # kMinBlockSize
MANY = 64  # marked blocks of one pool

Done = Callable[[Work], bool]  # a choice: has the device got to this mark?


class Allocator(Protocol):
    """One pool of memory: the default one, a private one of graphs, pinned host memory."""

    def take(self, size: int, stream: int, ask: bool) -> Chunk:
        """``size`` is rounded, ``stream`` -1 for the host. ``ask``: no capture is under way. During
        one torch's allocator of device memory looks at no mark; the others do, as always.
        """

    def marks(self, block: Block) -> list[Work]:
        """Left by a free in the streams; what the block has to wait for."""

    def give(self, chunk: Chunk, marks: list[Work]) -> None:
        """Can be taken again: at once, or when the marks are done."""

    def settle(self, wait: Callable[[Work], None]) -> None:
        """``empty_cache`` waits for all marks (synchronize_and_free_events), or without ``wait``
        for the whole device (stream-ordered) ...
        """

    def give_back(self) -> None:
        """... and what nobody uses goes back to the driver."""


class Native:
    """Segments of fixed size. ``done`` asks about a mark."""

    def __init__(self, source: Source, done: Done) -> None:
        self.source, self.done = source, done
        self._pools: dict[tuple[bool, int], Pool] = {}

    def take(self, size: int, stream: int, ask: bool) -> Chunk:
        key = size <= SMALL, stream
        pool = self._pools.get(key)
        if pool is None:
            pool = self._pools[key] = Pool(key[0])
        if pool.marked and ask:
            self._process(pool, size)
        place = self._best(pool, size)
        chunk = pool.pop(place) if place >= 0 else self._more(pool, size)
        if self._splits(pool, chunk.size - size):
            pool.insert(chunk.cut(size))
        chunk.state = IN_USE
        return chunk

    def marks(self, block: Block) -> list[Work]:
        """insert_events: one on each recorded stream."""
        if not block.recorded:
            return []
        return [block.heap.mark(block, stream, edges)
                for stream, edges in sorted(block.recorded.items())]

    def give(self, chunk: Chunk, marks: list[Work]) -> None:
        if marks:
            chunk.state, chunk.marks = MARKED, marks
            chunk.pool.marked.append(chunk)
        else:
            self.release(chunk)

    def settle(self, wait: Callable[[Work], None]) -> None:
        for pool in self._pools.values():
            for chunk in list(pool.marked):
                for work in chunk.marks:
                    wait(work)
                pool.marked.remove(chunk)
                chunk.marks = []
                self.release(chunk)

    def give_back(self) -> None:
        for (_, stream), pool in self._pools.items():
            self._give_back(pool, stream)

    # -- where the free memory is ------------------------------------------------------------------

    def _best(self, pool: Pool, size: int) -> int:
        """The place in ``pool.free`` of what would be taken; -1: nothing fits."""
        place = bisect_left(pool.free, (size, 0))
        return place if place < len(pool.free) else -1

    def place(self, pool: Pool, size: int) -> Place:
        """Where `take` would go."""
        best = self._best(pool, size)
        if best >= 0:
            length, address = pool.free[best]
            return address, size if self._splits(pool, length - size) else length
        room = self._room(pool, size)
        return None if room is None else (room.address, size)

    def _splits(self, pool: Pool, rest: int) -> bool:
        """should_split: in the large pool a smaller rest stays with the block, unused."""
        return rest >= MIN_BLOCK if pool.small else rest > SMALL

    def _room(self, pool: Pool, size: int) -> Chunk | None:
        """Where a segment that there is would grow."""
        return None

    def _more(self, pool: Pool, size: int) -> Chunk:
        """A new segment (get_allocation_size)."""
        if pool.small:
            reserve = SMALL_SEGMENT
        elif size < OWN_SEGMENT:
            reserve = LARGE_SEGMENT
        else:
            reserve = -(-size // ROUND_SEGMENT) * ROUND_SEGMENT
        self.source.reserve(reserve)
        return Chunk(pool, self.source.segment(reserve), 0, reserve)

    def release(self, chunk: Chunk) -> Chunk:
        """free_block: merges with its neighbours."""
        pool = chunk.pool
        for other in (chunk.before, chunk.after):
            if other is not None and other.state == FREE:
                pool.remove(other)
                chunk = merge(chunk, other)
        chunk.state = FREE
        pool.insert(chunk)
        return chunk

    def _give_back(self, pool: Pool, stream: int) -> None:
        """release_blocks: segments that are free as a whole."""
        for chunk in pool.all_free():
            if chunk.before is None and chunk.after is None:
                pool.remove(chunk)
                self.source.reserve(-chunk.size)

    # -- marks -------------------------------------------------------------------------------------

    def _process(self, pool: Pool, size: int) -> None:
        """process_events, as far as it can matter here, in the order of the frees."""
        refused: set[Chunk] = set()
        if len(pool.marked) > MANY:  # to look at all of them each time is only slow
            self._ask(pool.marked[0], refused)
        while (chunk := deciding(pool, size, refused, self)) is not None:
            self._ask(chunk, refused)

    def _ask(self, chunk: Chunk, refused: set[Chunk]) -> None:
        while chunk.marks:
            if not self.done(chunk.marks[0]):
                refused.add(chunk)
                return
            del chunk.marks[0]
        chunk.pool.marked.remove(chunk)
        self.release(chunk)
