"""Device and pinned host memory: real bytes, and the allocators that hand them out again.

Device memory follows torch's native caching allocator in what matters for order: a freed block may
be taken by the next allocation *of its allocating stream* that fits, oldest first, at once, while
kernels of other streams may still use it. `record_stream` puts that off until the work queued on
the recorded stream at the time of the free is done (CUDACachingAllocator: an event per stream,
queried at each allocation). Whether that is so is a choice of the device's progress, and taking
the block then orders the host after that work.

Pinned host memory follows CachingHostAllocator: a freed block waits for the streams that used it;
each allocation looks which of them are done, oldest first, up to the first that is not; of the free
blocks the one that became free last is taken; blocks are never split.

Fresh memory holds a pattern that differs by generation. A block that is handed out again holds
whatever was written last, as on hardware.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch

from .machine import Machine
from .work import Work

_frombuffer = torch._C._VariableFunctions.frombuffer
ALIGNMENT = 512  # bytes; kMinBlockSize of CUDACachingAllocator
SMALL = 1 << 20  # requests up to here come from the small pool
_PATTERN = 0x3C6EF35F  # as float32 a small odd number, as an index far out of range

# Made-up device addresses, for data_ptr(): nothing can dereference them.
_BASE = 0x7F0000000000


class Memory:
    """A range of real bytes with an id of its own. Never shared between device and host."""

    __slots__ = ("address", "buffer", "id", "pinned", "size")

    def __init__(self, id: int, size: int, pinned: bool, address: int) -> None:
        self.id, self.size, self.pinned, self.address = id, size, pinned, address
        raw = np.empty(size + ALIGNMENT, np.uint8)
        shift = -raw.ctypes.data % ALIGNMENT  # the kernels' rounding must not depend on placement
        self.buffer = raw[shift : shift + size]


@dataclass(slots=True, eq=False, weakref_slot=True)
class Block:
    """One lifetime of a range of memory. Dies with the last tensor that holds it."""

    heap: Heap
    memory: Memory
    start: int
    size: int  # bytes held, rounded up
    allocation: int  # id in the trace
    stream: int  # agent that allocated it; -1 for host memory
    nbytes: int  # bytes asked for
    recorded: dict[int, set[int]] = field(default_factory=dict)  # stream agent -> edges
    dead: bool = False
    captured: bool = False  # belongs to a graph, whose replays use it on whatever stream
    exposed: bool = False  # somebody has its address: host accesses may go unseen
    storage: Any = None  # a weak reference to the storage object, once a program asked for it
    origin: int = -1  # the first allocation of its storage, where that was resized

    def view(self, dtype: torch.dtype, nbytes: int) -> torch.Tensor:
        """The block's bytes as a flat CPU tensor with a storage of its own (offset 0)."""
        if nbytes == 0:
            return torch.empty(0, dtype=dtype)
        return _frombuffer(  # torch's own: the one in its place keeps track of arrays
            self.memory.buffer, dtype=dtype, count=nbytes // dtype.itemsize, offset=self.start
        )

    @property
    def address(self) -> int:
        return self.memory.address + self.start

    def release(self) -> None:
        """The storage dies (last reference, ``resize_(0)``, ``set_``)."""
        if not self.dead:
            self.dead = True
            self.heap.free(self)

    def __del__(self) -> None:
        self.release()


@dataclass(slots=True, eq=False)
class Free:
    """A range that can be handed out: at once, or when ``pending`` is done."""

    memory: Memory
    start: int
    size: int
    stream: int
    pending: list[Work] = field(default_factory=list)


def _adjacent(a: Free, b: Free) -> bool:
    touch = a.start + a.size == b.start or b.start + b.size == a.start
    return touch and a.memory is b.memory and not (a.pending or b.pending)


class Heap:
    """One pool: the default one, a private pool of graphs, or the pinned host pool."""

    def __init__(
        self, machine: Machine, pinned: bool, new_memory: Callable[[int, bool], Memory]
    ) -> None:
        self.machine = machine
        self.pinned = pinned
        self.new_memory = new_memory
        self.ranges: list[Free] = []  # in the order in which they were freed, or became free
        self.reuse_at_once = False  # rule switches 6 and 7: reuse ignores what is pending
        self.reserved = self.allocated = self.peak = 0
        self.closed = False
        # Faults of memory: asked in place of `_allocate`, which is its last argument.
        self.altered: Callable[[int, int, int, Callable[..., Block]], Block] | None = None
        self.handed_out: dict[int, Callable[[], None]] = {}  # by allocation: looks at its bytes

    def allocate(self, nbytes: int, stream: int, site: int) -> Block:
        """A block for ``nbytes`` on ``stream`` (-1: host)."""
        if self.altered is not None:
            return self.altered(nbytes, stream, site, self._allocate)
        return self._allocate(nbytes, stream, site)

    def _allocate(self, nbytes: int, stream: int, site: int) -> Block:
        size = self._round(nbytes)
        free = self._take(size, stream)
        if free is None:
            free = self._fresh(size, stream)
        self.allocated += free.size
        self.peak = max(self.peak, self.allocated)
        index = self.machine.allocation(
            free.memory.id, free.start, nbytes, self.pinned, site, stream
        )
        return Block(self, free.memory, free.start, free.size, index, stream, nbytes)

    def _round(self, nbytes: int) -> int:
        if self.pinned:  # CachingHostAllocator rounds to a power of two
            return max(ALIGNMENT, 1 << (nbytes - 1).bit_length() if nbytes else 1)
        return max(ALIGNMENT, -(-nbytes // ALIGNMENT) * ALIGNMENT)

    def _fresh(self, size: int, stream: int) -> Free:
        memory = self.new_memory(size, self.pinned)
        self.reserved += size
        return Free(memory, 0, size, stream)

    def _take(self, size: int, stream: int) -> Free | None:
        if self.pinned:
            return self._take_pinned(size)
        for place, free in enumerate(self.ranges):
            if self._fits(free, size, stream) and (not free.pending or self._idle(free)):
                del self.ranges[place]
                return self._split(free, size, place)
        return None

    def _take_pinned(self, size: int) -> Free | None:
        """process_events, then get_free_block, which takes from the back."""
        for free in [free for free in self.ranges if free.pending and free.size == size]:
            if not self._idle(free):
                break
            free.pending.clear()
            self.ranges.remove(free)
            self.ranges.append(free)
        for free in reversed(self.ranges):
            if free.size == size and not free.pending:
                self.ranges.remove(free)
                return free
        return None

    def _fits(self, free: Free, size: int, stream: int) -> bool:
        small = size <= SMALL
        return free.stream == stream and free.size >= size and (free.size <= SMALL) == small

    def _idle(self, free: Free) -> bool:
        """Is what was queued on the recorded streams done? If so the host comes after it."""
        if self.reuse_at_once:
            return True
        return all(
            self.machine.choice("reuse", [work], work.key, allocation=work.allocation)
            for work in free.pending
        )

    def _split(self, free: Free, size: int, place: int) -> Free:
        rest = free.size - size
        if rest == 0 or (size > SMALL and rest <= SMALL):
            return free
        # The rest keeps its age: it stays where the whole was, in front of younger ranges.
        self.ranges.insert(place, Free(free.memory, free.start + size, rest, free.stream))
        return Free(free.memory, free.start, size, free.stream)

    def free(self, block: Block) -> None:
        if self.closed:
            return
        if self.handed_out:
            self.look(block.allocation)
        self.allocated -= block.size
        machine, died = self.machine, block.allocation
        pending = [
            machine.publish(s, "free marker", ("free", died, s), tuple(sorted(edges)), died)
            for s, edges in sorted(block.recorded.items())
        ]
        if not block.captured:  # its reuse is between captures, and ordered where they replay
            machine.freed(died)
        self._put(Free(block.memory, block.start, block.size, block.stream, pending))

    def look(self, *allocations: int) -> None:
        """Were bytes written unseen in what was handed out? Once for each, at its end."""
        for allocation in allocations or list(self.handed_out):
            look = self.handed_out.pop(allocation, None)
            if look is not None:
                look()

    def _put(self, free: Free) -> None:
        """Neighbours in one memory merge, as in the caching allocator, where nothing is pending."""
        place = len(self.ranges)
        if not free.pending and not self.pinned:
            near = [i for i, other in enumerate(self.ranges) if _adjacent(other, free)]
            for i in reversed(near):  # at most one on either side; the older one's place is kept
                place, other = i, self.ranges.pop(i)
                start = min(free.start, other.start)
                free = Free(free.memory, start, free.size + other.size, free.stream)
        self.ranges.insert(place, free)

    def empty(self) -> None:
        """``empty_cache``: waits for what is pending (as torch does) and forgets every range."""
        for free in self.ranges:
            for work in free.pending:
                self.machine.acquire("empty_cache", work.key, work)
            self.reserved -= free.size
        self.ranges.clear()


class MemorySystem:
    """All memory of one virtual GPU and its host's pinned memory."""

    def __init__(self, machine: Machine) -> None:
        self.machine = machine
        self.memories: list[Memory] = []
        self.device = Heap(machine, False, self.new_memory)
        self.pinned = Heap(machine, True, self.new_memory)
        self.pools: dict[tuple[int, int], Heap] = {}
        self.pattern: int | None = None  # rule switch 9: one constant for all fresh memory
        self._next_address = _BASE

    def new_memory(self, size: int, pinned: bool) -> Memory:
        """Fresh memory: a pattern by generation on the device, zeroes never promised."""
        generation = len(self.memories)
        memory = Memory(generation, size, pinned, self._next_address)
        self._next_address += -(-size // (1 << 21)) * (1 << 21)
        word = (_PATTERN + 0x61C88647 * generation) & 0x7FFFFFFF
        if self.pattern is not None:
            word = self.pattern
        memory.buffer[: size // 4 * 4].view(np.uint32)[:] = word | 0x41
        if pinned:
            memory.address = int(memory.buffer.ctypes.data)
        self.memories.append(memory)
        return memory

    def pool(self, id: tuple[int, int]) -> Heap:
        """The private pool of graphs with this id, made when first asked for."""
        heap = self.pools.get(id)
        if heap is None:
            heap = self.pools[id] = Heap(self.machine, False, self.new_memory)
        return heap

    def heaps(self) -> list[Heap]:
        return [self.device, self.pinned, *self.pools.values()]

    def close(self) -> None:
        """After the run: blocks that die later are nobody's business."""
        for heap in self.heaps():
            heap.closed = True
