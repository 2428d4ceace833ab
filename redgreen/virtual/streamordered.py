"""The stream-ordered allocator: torch's CUDAMallocAsyncAllocator.cpp over cudaMallocAsync.

A free takes its place in a stream: that of the allocation (cudaFreeAsync). With recorded streams it
is a stream of torch's own, which waits for the allocating stream and for all the recorded ones. No
stream of the program waits for them, and so nothing of that orders the program. Here the free has a
mark in each of those streams, those of recorded streams carried by the record_stream calls; it is
past when all its marks are. (On hardware it also comes after older frees of torch's own stream.)

The memory may be handed out again, to any stream, where it is known that the free comes first. The
driver has three ways to know (CUDA Programming Guide, stream-ordered memory allocator, reuse
policies; all are on by default):

* FollowEventDependencies: the allocating stream comes after the free, by its own order or by
  events. Nothing is added to the order.
* AllowOpportunistic: the device has passed the free when the allocation is called. That is a choice
  of the device's progress, like the marks of the caching allocator, and is explored both ways.
* AllowInternalDependencies: the driver makes the allocating stream wait. It need not, and may hand
  out other memory instead. So a program cannot lean on that wait, and a schedule with it could only
  hide races: it is never taken. What the old block's users lose by such a reuse they also lose by
  an opportunistic one, which waits for the same marks.

Which of the free ranges the driver takes is not specified; here it is the smallest that fits, then
the lowest address, as if all frees were past. On an H200 (driver 580, torch 2.11) the first two
ways were seen, the third was not, and neighbours merge.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from ..order import Clocks
from .chunks import FREE, IN_USE, Chunk, Pool, Source, merge
from .machine import Machine
from .work import Work

if TYPE_CHECKING:
    from .memory import Block, Memory

PAGE = 32 << 20  # bytes that the pool takes from the device at once
ADDRESSES = 512 * PAGE  # of one memory: more than real bytes can fill


class StreamOrdered:
    """One pool for all streams."""

    def __init__(self, source: Source, done: Callable[[Work], bool], machine: Machine) -> None:
        self._source, self._done, self._machine = source, done, machine
        self._pool = Pool(small=False)
        self._free: list[Chunk] = []  # by address
        self._memory: Memory | None = None
        self._last: Chunk | None = None  # the highest chunk of the memory
        self._end = 0  # of what was ever handed out
        self._pages: set[int] = set()  # addresses of those that the pool has
        self._clocks, self._seen = Clocks(0), 0

    def take(self, size: int, stream: int, ask: bool) -> Chunk:
        refused: set[Chunk] = set()
        while (run := self._best(size, refused)) is not None:
            unsure = self._unsure(run, stream)
            if unsure is None:
                return self._use(run, size)
            refused.add(unsure)
        return self._fresh(size)

    def marks(self, block: Block) -> list[Work]:
        """In the order in which torch's own stream comes to wait for them."""
        used = [(block.stream, set[int]()), *sorted(block.recorded.items())]
        return [block.heap.mark(block, stream, edges) for stream, edges in used]

    def give(self, chunk: Chunk, marks: list[Work]) -> None:
        """Neighbours stay apart: each has its own marks."""
        chunk.state, chunk.marks = FREE, marks
        self._insert(chunk)

    def settle(self, wait: Callable[[Work], None]) -> None:
        """emptyCache: cudaDeviceSynchronize."""
        self._machine.drain("empty_cache", tuple(self._machine.queues))

    def give_back(self) -> None:
        """The pages that nobody uses go back (cudaMemPoolTrimTo)."""
        whole: list[Chunk] = []
        for chunk in self._free:
            chunk.marks = []
            if whole and whole[-1].after is chunk:
                whole[-1] = self._join(whole[-1], chunk)
            else:
                whole.append(chunk)
        self._free.clear()
        for chunk in whole:
            self._trim(chunk)

    # -- which range -------------------------------------------------------------------------------

    def _best(self, size: int, refused: set[Chunk]) -> list[Chunk] | None:
        """The chunks at the front of the best range, as many as the request needs."""
        best: tuple[int, list[Chunk]] | None = None
        for run in self._runs(refused):
            total = sum(chunk.size for chunk in run)
            if total >= size and (best is None or total < best[0]):
                best = total, run
        if best is None:
            return None
        found, left = [], size
        for chunk in best[1]:
            if left > 0:
                found.append(chunk)
                left -= chunk.size
        return found

    def _runs(self, refused: set[Chunk]) -> Iterator[list[Chunk]]:
        run: list[Chunk] = []
        for chunk in self._free:
            if chunk in refused:
                continue
            if run and run[-1].after is not chunk:
                yield run
                run = []
            run.append(chunk)
        if run:
            yield run

    def _unsure(self, run: list[Chunk], stream: int) -> Chunk | None:
        """The first chunk whose free need not come before this allocation."""
        for chunk in run:
            for work in chunk.marks:
                if not self._before(work, stream) and not self._done(work):
                    return chunk
        return None

    def _before(self, work: Work, stream: int) -> bool:
        """Does the next step of ``stream`` come after this mark, by the order alone?"""
        if work.agent == stream:
            return True
        machine, clocks = self._machine, self._clocks
        clocks.grow(len(machine.trace.agents))
        for step in machine.works[self._seen :]:
            clocks.advance(step)
        self._seen = len(machine.works)
        return any(clocks.clock(agent)[work.agent] > work.index
                   for agent in (stream, machine.host()))

    # -- chunks ------------------------------------------------------------------------------------

    def _insert(self, chunk: Chunk) -> None:
        insort(self._free, chunk, key=lambda other: other.address)

    def _use(self, run: list[Chunk], size: int) -> Chunk:
        taken, marks = run[0], run[-1].marks
        for chunk in run:
            self._free.remove(chunk)
        for chunk in run[1:]:
            taken = self._join(taken, chunk)
        if taken.size > size:
            rest = self._cut(taken, size)
            rest.marks = marks
            self._insert(rest)
        taken.state, taken.marks = IN_USE, []
        return taken

    def _cut(self, chunk: Chunk, size: int) -> Chunk:
        rest = chunk.cut(size)
        if chunk is self._last:
            self._last = rest
        return rest

    def _join(self, a: Chunk, b: Chunk) -> Chunk:
        last = self._last in (a, b)
        joined = merge(a, b)
        if last:
            self._last = joined
        return joined

    def _fresh(self, size: int) -> Chunk:
        memory = self._memory
        if memory is None or self._end + size > memory.size:
            reserve = max(ADDRESSES, -(-size // PAGE) * PAGE)
            memory = self._memory = self._source.segment(reserve, growing=True)
            self._last, self._end = None, 0
        chunk = Chunk(self._pool, memory, self._end, size)
        chunk.state, chunk.before = IN_USE, self._last
        if self._last is not None:
            self._last.after = chunk
        self._last, self._end = chunk, self._end + size
        pages = range(chunk.address // PAGE, (chunk.address + size - 1) // PAGE + 1)
        new = set(pages) - self._pages
        self._pages |= new
        self._source.reserve(PAGE * len(new))
        return chunk

    def _trim(self, chunk: Chunk) -> None:
        """Whole pages are never used again: what is handed out later is fresh."""
        if chunk is self._last:  # nothing more comes from its last page
            more = -(chunk.address + chunk.size) % PAGE
            chunk.size, self._end = chunk.size + more, self._end + more
        low = -(-chunk.address // PAGE) * PAGE
        high = (chunk.address + chunk.size) // PAGE * PAGE
        if low >= high:
            self._insert(chunk)
            return
        if high < chunk.address + chunk.size:
            self._insert(self._cut(chunk, high - chunk.address))
        if low > chunk.address:
            front, chunk = chunk, self._cut(chunk, low - chunk.address)
            self._insert(front)
        chunk.state = IN_USE
        gone = self._pages.intersection(range(low // PAGE, high // PAGE))
        self._pages -= gone
        self._source.reserve(-PAGE * len(gone))
