"""torch's caching allocator with expandable_segments:True.

Each pool and stream has one segment, which grows. So all freed neighbours merge, and a request that
is larger than what is free takes the free end of the segment and maps the rest. Memory is mapped in
pages of 2 MiB (small pool) or 20 MiB (large pool), and empty_cache unmaps pages wherever they are
free. The names in the comments are those of CUDACachingAllocator.cpp.
"""

from __future__ import annotations

from bisect import bisect_left

from .allocator import LARGE_SEGMENT, MIN_BLOCK, SMALL_SEGMENT, Native
from .chunks import FREE, UNMAPPED, Chunk, Pool, merge

ADDRESSES = 800 * LARGE_SEGMENT  # of one segment: more than real bytes can fill


class Expandable(Native):
    """One segment for each pool and stream. ``done`` asks about a mark."""

    def _best(self, pool: Pool, size: int) -> int:
        """get_free_block: a range in front of unmapped memory counts as all that it can become."""
        place = bisect_left(pool.free, (size, 0))
        if place == len(pool.free):
            return -1
        best = pool.at(place)
        while best.before or best.after:
            if place + 1 == len(pool.free):
                break
            other = pool.at(place + 1)
            if _potential(other) >= _potential(best):
                break
            place, best = place + 1, other
        return place

    def _splits(self, pool: Pool, rest: int) -> bool:
        return rest >= MIN_BLOCK

    def _more(self, pool: Pool, size: int) -> Chunk:
        """try_allocate_expandable_block."""
        chunk = self._room(pool, size) or self._segment(pool, size)
        if chunk.state == UNMAPPED:
            chunk = self._map(chunk, min(chunk.size, size))
        while chunk.size < size:
            assert chunk.after is not None
            chunk = self._map(chunk.after, min(size - chunk.size, chunk.after.size))
        pool.remove(chunk)
        return chunk

    def _room(self, pool: Pool, size: int) -> Chunk | None:
        """find_expandable_block: the lowest address with enough behind it."""
        for address in sorted(pool.unmapped):
            chunk = pool.unmapped[address]
            if chunk.before is not None and chunk.before.state == FREE:
                chunk = chunk.before
            room = 0
            at: Chunk | None = chunk
            while room < size and at is not None and at.state in (FREE, UNMAPPED):
                room, at = room + at.size, at.after
            if room >= size:
                return chunk
        return None

    def _segment(self, pool: Pool, size: int) -> Chunk:
        reserve = max(ADDRESSES, -(-size // LARGE_SEGMENT) * LARGE_SEGMENT)
        chunk = Chunk(pool, self.source.segment(reserve, growing=True), 0, reserve)
        chunk.state = UNMAPPED
        pool.unmapped[chunk.address] = chunk
        return chunk

    def _map(self, chunk: Chunk, need: int) -> Chunk:
        """map_block: whole pages from the front of unmapped memory; merges with free neighbours."""
        page = SMALL_SEGMENT if chunk.pool.small else LARGE_SEGMENT
        size = min(-(-need // page) * page, chunk.size)
        del chunk.pool.unmapped[chunk.address]
        if size < chunk.size:
            rest = chunk.cut(size)
            rest.state = UNMAPPED
            rest.pool.unmapped[rest.address] = rest
        self.source.reserve(size)
        return self.release(chunk)

    def _give_back(self, pool: Pool, stream: int) -> None:
        """Whole pages are unmapped wherever they are free. unmapHandles waits for the stream."""
        page = SMALL_SEGMENT if pool.small else LARGE_SEGMENT
        for chunk in pool.all_free():
            low = -(-chunk.start // page) * page
            high = (chunk.start + chunk.size) // page * page
            if low < high:
                self.source.idle(stream)
                self.source.unmap(chunk.memory, low, high)
                self._unmap(chunk, low, high)

    def _unmap(self, chunk: Chunk, low: int, high: int) -> None:
        pool = chunk.pool
        pool.remove(chunk)
        if high < chunk.start + chunk.size:
            pool.insert(chunk.cut(high - chunk.start))
        if low > chunk.start:
            front, chunk = chunk, chunk.cut(low - chunk.start)
            pool.insert(front)
        self.source.reserve(low - high)
        for other in (chunk.before, chunk.after):
            if other is not None and other.state == UNMAPPED:
                del pool.unmapped[other.address]
                chunk = merge(chunk, other)
        chunk.state = UNMAPPED
        pool.unmapped[chunk.address] = chunk


def _potential(chunk: Chunk) -> int:
    after = chunk.after
    return chunk.size + (after.size if after is not None and after.state == UNMAPPED else 0)
