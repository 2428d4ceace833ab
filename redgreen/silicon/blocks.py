"""Which memory a tensor lies in: lifetimes of address ranges, as the allocators hand them out.

A storage is found by its C++ address and dies with a weak reference to its Python object (which
torch keeps for as long as the C++ object lives). Where its bytes lie is asked of the storage itself
at every use, so that one that was resized or exchanged is seen to be another lifetime. Device
memory is numbered by the caching allocator's segments and pinned memory by its blocks (which are
never split), in the order of first use: numbers and offsets are the same in every run.

What the allocators do is observed, not imitated. A freed block that other streams were recorded on
may come back when these are done (CUDACachingAllocator::process_events): before an allocation each
candidate that would fit is a CHOICE, and where the new block then lies must agree.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch

from ..trace import Access, Kind
from ..virtual.extents import extent
from ..virtual.machine import Machine
from ..virtual.work import Work
from .driver import Driver

ALIGNMENT = 512  # bytes; kMinBlockSize of CUDACachingAllocator
MARKER = "free marker"
PASSED = (MARKER, "replayed")  # these say that the device is there; nothing is held by them
storage_of: Callable[[torch.Tensor], torch.UntypedStorage] = torch._C.TensorBase.untyped_storage


@dataclass(slots=True, eq=False)
class Block:
    """One lifetime of a range of memory."""

    memory: int
    start: int
    nbytes: int  # of the storage
    address: int
    pinned: bool
    allocation: int  # id in the trace
    stream: int  # agent that allocated it; -1 for host memory
    captured: bool = False  # belongs to a graph, whose replays use it on whatever stream
    recorded: dict[int, set[int]] = field(default_factory=dict)  # stream agent -> edges

    @property
    def held(self) -> int:
        """Bytes that the allocator holds for it."""
        if self.pinned:  # CachingHostAllocator rounds to a power of two
            return max(1, 1 << (self.nbytes - 1).bit_length())
        return max(ALIGNMENT, -(-self.nbytes // ALIGNMENT) * ALIGNMENT)


@dataclass(slots=True, eq=False)
class Pending:
    """A freed block that waits for the streams that were recorded on it."""

    block: Block
    markers: list[Work]


class Blocks:
    """The storages of one run that lie in device or pinned memory."""

    def __init__(self, machine: Machine, driver: Driver) -> None:
        self._machine, self._driver = machine, driver
        self._known: dict[int, tuple[Block, weakref.ref[Any]]] = {}
        self._segments: list[tuple[int, int, int]] = []  # start, end, memory
        self._hosts: dict[int, int] = {}  # address of a pinned block -> memory
        self._memories = 0
        self.pending: list[Pending] = []
        self.pinned_ranges: dict[int, int] = {}  # address -> bytes, of all there ever were
        self.closed = False
        self.earlier: dict[int, weakref.ref[Any]] = {}  # storages of the warm-up that live on
        machine.catch_up = self._catch_up
        # What the machine does to execute a marker: wait until the device is there.
        self.milestone: Callable[[int], Callable[[Work], object]] = lambda agent: lambda work: None

    # -- look-up ---------------------------------------------------------------------------------

    def of(self, tensor: torch.Tensor) -> Block | None:
        """The block of a tensor whose storage was added before."""
        storage = storage_of(tensor)
        known = self._known.get(storage._cdata)
        if known is None:
            if self.earlier and storage._cdata in self.earlier:
                self._outlived(storage)
            return None
        block = known[0]
        if block.address != self._driver.address(storage):
            self._died(storage._cdata)  # resized, or another storage's memory was set
            return None
        return block

    def alive(self) -> dict[int, weakref.ref[Any]]:
        """The storages that there still are."""
        return {key: ref for key, (_, ref) in self._known.items() if ref() is not None}

    def _outlived(self, storage: torch.UntypedStorage) -> None:
        """How it came to be, and with what order, is in the trace of no run."""
        if self.earlier.pop(storage._cdata)() is storage:
            text = ("a tensor that a module or a cache keeps from one run of the process to the "
                    "next is used: what made it is not followed on a real GPU")
            if text not in self._machine.trace.refusals:
                self._machine.trace.refusals.append(text)

    def add(
        self, tensor: torch.Tensor, pinned: bool, site: int, stream: int, captured: bool = False
    ) -> Block:
        """A storage that is new to us."""
        storage = storage_of(tensor)
        address, nbytes = self._driver.address(storage), storage.nbytes()
        memory, base = self._host(address, nbytes) if pinned else self._segment(address)
        start = address - base
        index = self._machine.allocation(memory, start, nbytes, pinned, site, stream)
        block = Block(memory, start, nbytes, address, pinned, index, stream, captured)
        key = storage._cdata
        self._known[key] = block, weakref.ref(storage, lambda _: self._died(key, block))
        self._landed(block)
        return block

    def _segment(self, address: int) -> tuple[int, int]:
        for start, end, memory in self._segments:
            if start <= address < end:
                return memory, start
        start, size = self._driver.segment(address)
        self._segments.append((start, start + size, self._memories))
        self._memories += 1
        return self._memories - 1, start

    def _host(self, address: int, nbytes: int) -> tuple[int, int]:
        self.pinned_ranges[address] = max(nbytes, self.pinned_ranges.get(address, 0))
        memory = self._hosts.get(address)
        if memory is None:
            memory = self._hosts[address] = self._memories
            self._memories += 1
        return memory, address

    def forget_segments(self) -> None:
        """``empty_cache``: an address that comes back is another memory."""
        live = {block.memory for block, _ in self._known.values()}
        self._segments = [s for s in self._segments if s[2] in live]

    def access(self, tensor: torch.Tensor, reads: bool, writes: bool) -> tuple[Access, ...]:
        """The access of a step that uses the whole tensor; empty for what is in neither memory."""
        block = self.of(tensor)
        if block is None:
            return ()
        size = tensor.element_size()
        start = block.start + int(tensor.storage_offset()) * size
        where = extent(start, tuple(tensor.shape), tensor.stride(), size)
        if where is None:
            return ()
        return (Access(block.memory, block.allocation, where, reads, writes),)

    # -- the end of a lifetime -------------------------------------------------------------------

    def _died(self, key: int, only: Block | None = None) -> None:
        known = self._known.get(key)
        if self.closed or known is None or (only is not None and known[0] is not only):
            return
        del self._known[key]
        block, machine = known[0], self._machine
        died = block.allocation
        markers = [self._marker(died, s, edges) for s, edges in sorted(block.recorded.items())]
        if not block.captured:  # its reuse is between captures, and ordered where they replay
            machine.freed(died)
        if markers:
            self.pending.append(Pending(block, markers))

    def _marker(self, died: int, agent: int, edges: set[int]) -> Work:
        """The allocator has recorded an event on that stream; ours comes right behind it, so when
        ours is done the allocator's query finds its own done as well."""
        machine = self._machine
        work = Work(agent, machine.host(), Kind.PUBLISH, MARKER, machine.sites.here(),
                    self.milestone(agent), key=("free", died, agent),
                    edges=tuple(sorted(edges)))  # fmt: skip
        work.allocation = died
        return machine.enqueue(work)

    # -- reuse -----------------------------------------------------------------------------------

    def before_allocation(self, nbytes: int, pinned: bool, stream: int) -> None:
        """Asks of each pending block that fits whether the streams are done with it."""
        wanted = Block(0, 0, nbytes, 0, pinned, 0, stream).held
        for pending in list(self.pending):
            block = pending.block
            fits = block.held == wanted if pinned else block.held >= wanted
            if block.pinned is not pinned or block.stream != stream or not fits:
                continue
            if not all(self._machine.choice("reuse", [w], w.key, allocation=w.allocation)
                       for w in pending.markers):  # fmt: skip
                if pinned:  # process_events stops at the first that is not done
                    return
                continue
            self.pending.remove(pending)
            return

    def _catch_up(self) -> None:
        """On the device a marker is done as soon as what is in front of it is; so it is here, or
        the allocator would find a block free that the machine still calls in use. It cannot be the
        other way round: a kernel that the machine has not executed has a closed gate."""
        machine = self._machine
        moved = True
        while moved:
            moved = False
            for queue in machine.queues.values():
                while queue and (queue[0].run is None or queue[0].op in PASSED) and (
                    queue[0].kind is not Kind.ACCESS and machine.blocker(queue[0]) is None
                ):  # fmt: skip
                    machine.pop(queue[0])
                    moved = True

    def _landed(self, block: Block) -> None:
        """The allocator has the last word about whose memory it is."""
        for pending in list(self.pending):
            old = pending.block
            apart = (old.start + old.nbytes <= block.start
                     or block.start + block.nbytes <= old.start)
            if old.memory != block.memory or apart:
                continue
            self.pending.remove(pending)
            for marker in pending.markers:  # its size was not foreseen
                if not self._machine.choice("reuse", [marker], marker.key,
                                            allocation=marker.allocation):  # fmt: skip
                    self._machine.trace.refusals.append(
                        "the allocator reused a block whose streams were held at that moment")
