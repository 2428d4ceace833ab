"""Device and pinned host memory: real bytes, and what hands them out and takes them back.

Which bytes an allocation gets is the allocator's part: `allocator` (torch's own, two of them),
`streamordered` (cudaMallocAsync), `pinned` (host memory). What they have in common is here: blocks,
that is lifetimes of a range; marks that a free leaves on ``record_stream``-ed streams; counters.

Rule 9: fresh memory holds a pattern that differs by generation. A generation is whatever is handed
out for the first time together: of a segment, bytes that nobody had cost neither time nor memory.
A block that is handed out again holds whatever was written last, as on hardware.
"""

from __future__ import annotations

import mmap
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch

from ..trace import Access, Extent
from .allocator import Allocator, Done, Native
from .chunks import Chunk, Usage
from .expandable import Expandable
from .machine import Machine
from .pinned import Pinned
from .streamordered import StreamOrdered
from .work import Work

_frombuffer = torch._C._VariableFunctions.frombuffer
ALIGNMENT = 512  # bytes; kMinBlockSize of CUDACachingAllocator
SEGMENT_ALIGNMENT = 1 << 21  # cudaMalloc gives whole pages of so many bytes
_PATTERN = 0x3C6EF35F  # as float32 a small odd number, as an index far out of range

# Made-up device addresses, for data_ptr(): nothing can dereference them.
_BASE = 0x7F0000000000


class Memory:
    """A range of real bytes with an id of its own. Never shared between device and host."""

    __slots__ = ("address", "buffer", "id", "pinned", "size", "used")

    def __init__(self, id: int, size: int, pinned: bool, address: int, growing: bool) -> None:
        self.id, self.size, self.pinned, self.address = id, size, pinned, address
        self.buffer = _addresses(size) if growing else _aligned(size)
        self.used = 0  # bytes from the front that were handed out at some time


def _aligned(size: int) -> npt.NDArray[np.uint8]:
    raw = np.empty(size + ALIGNMENT, np.uint8)
    shift = -raw.ctypes.data % ALIGNMENT  # the kernels' rounding must not depend on placement
    return raw[shift : shift + size]


def _addresses(size: int) -> npt.NDArray[np.uint8]:
    """More bytes than the machine has: pages become real when they are written."""
    noreserve = 0x4000 if sys.platform == "linux" else 0  # in `mmap` since Python 3.13
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | noreserve
    return np.frombuffer(mmap.mmap(-1, size, flags=flags), np.uint8)


@dataclass(slots=True, eq=False, weakref_slot=True)
class Block:
    """One lifetime of a range of memory. Dies with the last tensor that holds it."""

    heap: Heap
    memory: Memory
    start: int
    chunk: Chunk | None  # what it holds; None: nothing was asked for
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


class Underway(Protocol):
    """A capture."""

    unjoined: bool  # a stream that nobody can join takes part


class Heap:
    """The default pool, a private pool of graphs, or pinned host memory."""

    def __init__(self, system: MemorySystem, usage: Usage, pinned: bool) -> None:
        self.system, self.usage, self.pinned = system, usage, pinned
        self.machine = system.machine
        self.allocator: Allocator = Pinned(self, self._done)
        self.reuse_at_once = False  # rule switches 6 and 7: reuse ignores what is pending
        # Faults of memory: asked in place of `_allocate`, which is its last argument.
        self.altered: Callable[[int, int, int, Callable[..., Block]], Block] | None = None
        self.handed_out: dict[int, Callable[[], None]] = {}  # by allocation: looks at its bytes

    def use(self, policy: str) -> Heap:
        """Chooses the allocator by name (`redgreen.backend`)."""
        made: dict[str, Callable[[Heap, Done], Allocator]] = {
            "native": Native,
            "expandable": Expandable,
            "stream-ordered": partial(StreamOrdered, machine=self.machine),
        }
        self.allocator = made[policy](self, self._done)
        return self

    # -- what allocators need ----------------------------------------------------------------------

    def segment(self, size: int, growing: bool = False) -> Memory:
        return self.system.new_memory(size, self.pinned, growing)

    def reserve(self, size: int) -> None:
        self.usage.reserve(size)

    def unmap(self, memory: Memory, low: int, high: int) -> None:
        """Whoever uses these bytes at this moment reads garbage, at best: to the order it is a
        write of the host, by nobody's tensor. Rule 9: they come back as fresh memory.
        """
        machine, stop = self.machine, min(high, memory.used)
        if low >= stop:
            return
        site = machine.sites.here()
        nobody = machine.allocation(memory.id, low, stop - low, False, site, -1)
        access = Access(memory.id, nobody, Extent(low, stop, stop - low), False, True)
        machine.host_access("unmap", (access,), site)
        self.system.fill(memory, low, stop)

    def idle(self, stream: int) -> None:
        self.machine.drain("empty_cache", (stream,))

    def _done(self, work: Work) -> bool:
        """Is what was queued before this mark done? If so the host comes after it."""
        return self.reuse_at_once or self.machine.choice(
            "reuse", [work], work.key, allocation=work.allocation
        )

    # -- blocks ------------------------------------------------------------------------------------

    def allocate(self, nbytes: int, stream: int, site: int) -> Block:
        """A block for ``nbytes`` on ``stream`` (-1: host)."""
        if self.altered is not None:
            return self.altered(nbytes, stream, site, self._allocate)
        return self._allocate(nbytes, stream, site)

    def _allocate(self, nbytes: int, stream: int, site: int) -> Block:
        system, usage = self.system, self.usage
        if nbytes == 0 and not self.pinned:  # torch asks the allocator for nothing
            chunk, memory, start = None, system.nothing(), 0
        else:
            if system.deferred and not system.captures:
                system.leave_marks()
            chunk = self.allocator.take(self._round(nbytes), stream, not system.captures)
            memory, start = chunk.memory, chunk.start
            end = start + chunk.size
            if end > memory.used:
                system.fill(memory, memory.used, end)
                memory.used = end
            usage.allocated += chunk.size
            if usage.allocated > usage.peak:
                usage.peak = usage.allocated
        index = self.machine.allocation(memory.id, start, nbytes, self.pinned, site, stream)
        return Block(self, memory, start, chunk, index, stream, nbytes)

    def _round(self, nbytes: int) -> int:
        if self.pinned:  # CachingHostAllocator rounds to a power of two
            return max(ALIGNMENT, 1 << (nbytes - 1).bit_length() if nbytes else 1)
        return -(-nbytes // ALIGNMENT) * ALIGNMENT

    def free(self, block: Block) -> None:
        system, chunk = self.system, block.chunk
        if system.closed:
            return
        if self.handed_out:
            self.look(block.allocation)
        defer = block.recorded and system.captures and not self.pinned
        if chunk is not None:
            self.usage.allocated -= chunk.size
        if chunk is not None and defer:
            system.deferred.append(block)
            if system.policy == "stream-ordered" and block.captured:
                # The stream that frees waits for streams of the capture and so becomes part of it.
                # It never joins again: seen on an H200 with torch 2.11.
                for capture in system.captures:
                    capture.unjoined = True
        else:
            self.give(block)

    def give(self, block: Block) -> None:
        """Marks first, then the free; then it can be taken again."""
        marks = self.allocator.marks(block) if block.chunk is not None else []
        if not block.captured:  # its reuse is between captures, and ordered where they replay
            self.machine.freed(block.allocation)
        if block.chunk is not None:
            self.allocator.give(block.chunk, marks)

    def mark(self, block: Block, stream: int, edges: set[int]) -> Work:
        """What a free leaves in a stream; the block is free when the stream has got there."""
        died = block.allocation
        key = ("free", died, stream)
        return self.machine.publish(stream, "free marker", key, tuple(sorted(edges)), died)

    def look(self, *allocations: int) -> None:
        """Were bytes written unseen in what was handed out? Once for each, at its end."""
        for allocation in allocations or list(self.handed_out):
            look = self.handed_out.pop(allocation, None)
            if look is not None:
                look()


class MemorySystem:
    """All memory of one virtual GPU and its host's pinned memory."""

    def __init__(self, machine: Machine, policy: str, captures: Sequence[Underway]) -> None:
        self.machine, self.policy = machine, policy
        self.captures = captures  # under way
        self.memories: list[Memory] = []
        self.usage = Usage()
        self.device = Heap(self, self.usage, False).use(policy)
        machine.trace.one_pool = policy == "stream-ordered"
        self.pinned = Heap(self, Usage(), True)
        self.pools: dict[tuple[int, int], Heap] = {}
        self.pattern: int | None = None  # rule switch 9: one constant for all fresh memory
        self.closed = False
        # Freed during a capture: torch leaves marks when none is under way any more.
        self.deferred: list[Block] = []
        self._generations = 0
        self._next_address = _BASE
        self._nothing: Memory | None = None

    def new_memory(self, size: int, pinned: bool, growing: bool = False) -> Memory:
        memory = Memory(len(self.memories), size, pinned, self._next_address, growing)
        self._next_address += -(-size // SEGMENT_ALIGNMENT) * SEGMENT_ALIGNMENT
        if pinned:
            memory.address = int(memory.buffer.ctypes.data)
        self.memories.append(memory)
        return memory

    def nothing(self) -> Memory:
        """Where blocks of no bytes are."""
        if self._nothing is None:
            self._nothing = self.new_memory(0, False)
        return self._nothing

    def fill(self, memory: Memory, start: int, stop: int) -> None:
        """Fresh memory: a pattern by generation, zeroes never promised. Ends are even words."""
        word = (_PATTERN + 0x61C88647 * self._generations) & 0x7FFFFFFF
        self._generations += 1
        if self.pattern is not None:
            word = self.pattern
        memory.buffer[start:stop].view(np.uint32)[:] = word | 0x41

    def leave_marks(self) -> None:
        """insert_events_deferred_until_no_capture."""
        deferred, self.deferred = self.deferred, []
        for block in deferred:
            block.heap.give(block)

    def empty_cache(self) -> None:
        """Marks are waited for in all pools; only the default pool gives memory back."""

        def wait(work: Work) -> None:
            self.machine.acquire("empty_cache", work.key, work)

        if not self.captures:
            self.leave_marks()
        for heap in (self.device, *self.pools.values()):
            heap.allocator.settle(wait)
        self.device.allocator.give_back()

    def pool(self, id: tuple[int, int]) -> Heap:
        """The private pool of graphs with this id, made when first asked for.

        With cudaMallocAsync, memory of a capture belongs to nodes of the graph: it is no part of
        the stream-ordered pool, and is taken for a private one all the same.
        """
        heap = self.pools.get(id)
        if heap is None:
            policy = "expandable" if self.policy == "expandable" else "native"
            heap = self.pools[id] = Heap(self, self.usage, False).use(policy)
        return heap

    def close(self) -> None:
        """After the run: blocks that die later are nobody's business."""
        self.closed = True
