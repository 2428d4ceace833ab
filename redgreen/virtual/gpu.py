"""The virtual GPU of one process: its machine, its memory, its streams."""

from __future__ import annotations

import threading
from collections.abc import Hashable
from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from ..faults import Fault
from ..schedule import SERIAL, Schedule
from ..trace import Access, Extent, Kind
from .machine import Machine
from .memory import Heap, MemorySystem
from .mutations import Mutations
from .parts import Parts
from .random import Random
from .stream_log import StreamLog
from .work import Work

if TYPE_CHECKING:
    from .autograd import Backward
    from .captures import Capture

POOL_STREAMS = 32  # per priority; CUDAStream.cpp, kStreamsPerPool
BACKEND = "vgpu"  # what PrivateUse1 is called; programs see "cuda"


@dataclass(slots=True, eq=False)
class StreamState:
    """One device queue. Pool streams come back: the 33rd is the 1st again."""

    agent: int
    id: int  # 0: the default stream
    priority: int
    capture: Capture | None = None


@dataclass(slots=True, eq=False)
class EventState:
    """The latest record of an event. ``work`` is None before the first."""

    key: Hashable
    work: Work | None = None
    capture: Capture | None = None  # recorded inside this capture
    time: int | None = None  # of the record's call in ns, for elapsed_time
    own: Hashable = None  # its key, where its latest record was early (`mutations`)
    timing: bool = False  # a record may be there for elapsed_time alone


class _Local(threading.local):
    """Per host thread: torch keeps the current stream per thread. No slots: threads share those."""

    def __init__(self) -> None:
        self.stream: StreamState | None = None
        self.pools: list[Heap] = []
        self.log: StreamLog | None = None
        self.backward: Backward | None = None  # under way over more than one stream


class GPU:
    """State of one device. `VirtualGPU` installs it as torch.cuda."""

    def __init__(
        self,
        schedule: Schedule = SERIAL,
        faults: frozenset[Fault] = frozenset(),
        step_limit: int | None = None,
        break_rule: int = 0,
        allocator: str = "native",
    ) -> None:
        self.machine = Machine(schedule, faults, step_limit)
        self.captures: list[Capture] = []  # under way
        self.memory = MemorySystem(self.machine, allocator, self.captures)
        self.machine.parted = lambda work, torn: Parts(work, torn, self.memory.memories)
        self.mutations: Mutations | None = None
        if Mutations.needed(faults):
            self.mutations = Mutations(self, faults)
            for heap in (self.memory.device, self.memory.pinned):
                heap.altered = self.mutations.allocate
        self.break_rule = break_rule  # one of design section 4: tests of it must fail
        self.memory.device.reuse_at_once = break_rule == 6
        self.memory.pinned.reuse_at_once = break_rule == 7
        self.memory.pattern = 0 if break_rule == 9 else None
        self.local = _Local()
        self.machine.host()  # agent 0 is the thread that made the GPU
        self.default = StreamState(self.machine.new_stream("stream 0"), 0, 0)
        self.streams: dict[int, StreamState] = {0: self.default}
        self._next_in_pool: dict[int, int] = {}
        self._events = self._staged = 0
        self.launches = 0  # of graphs
        self.random = Random(at_enqueue=break_rule != 14)
        self.logs: list[StreamLog] = []  # of threads that have changed their current stream
        self.first_record: dict[Hashable, Work] = {}  # rule switch 4: waits bind to the first
        self._followed: dict[int, list[int]] = {}  # rule switch 5: wait_stream covers later work

    def refuse(self, message: str) -> None:
        """Remembers what could not be run: no verdict is proved past a refusal."""
        self.machine.trace.refusals.append(message)

    def staging(self) -> tuple[Access, Access]:
        """Host memory that a blocking copy lands in: the device's write and the host's read."""
        self._staged += 1
        memory = -self._staged
        lifetime = self.machine.allocation(memory, 0, 1, True, self.machine.sites.here(), -1)
        where = Extent(0, 1, 1)
        return Access(memory, lifetime, where, False, True), Access(
            memory, lifetime, where, True, False
        )

    # -- streams ---------------------------------------------------------------------------------

    def current(self) -> StreamState:
        local = self.local
        if local.backward is not None:
            local.backward.follow()
        stream = local.stream
        return self.default if stream is None else stream

    def switch(self, stream: StreamState | None) -> None:
        """Makes ``stream`` the current one of this thread (None: the default stream)."""
        local = self.local
        log = local.log
        if log is None:
            log = local.log = StreamLog(local.stream or self.default)
            self.logs.append(log)
        local.stream = stream
        log.change(stream or self.default)

    def pool_stream(self, priority: int) -> StreamState:
        """The next stream of the pool of this priority (round robin over 32)."""
        turn = self._next_in_pool.get(priority, 0)
        self._next_in_pool[priority] = turn + 1
        size = POOL_STREAMS if self.break_rule != 3 else 1 << 20
        id = 1 + turn % size + (-priority) * 100
        stream = self.streams.get(id)
        if stream is None:
            agent = self.machine.new_stream(f"stream {id}")
            stream = self.streams[id] = StreamState(agent, id, priority)
        return stream

    def follow(self, waiter: StreamState, awaited: StreamState) -> None:
        self._followed.setdefault(waiter.agent, []).append(awaited.agent)

    def agents(self) -> tuple[int, ...]:
        """All device agents, for a device-wide synchronize."""
        return tuple(self.machine.queues)

    def new_event(self) -> EventState:
        self._events += 1
        return EventState(("event", self._events))

    # -- issue -----------------------------------------------------------------------------------

    def submit(self, stream: StreamState, work: Work) -> None:
        """Enqueues work on a stream, or adds it to the capture that the stream is in."""
        if self.mutations is not None and work.kind is Kind.ACCESS:
            self.mutations.before(stream, work)
            self._submit(stream, work)
            self.mutations.after(stream)
        else:
            self._submit(stream, work)

    def _submit(self, stream: StreamState, work: Work) -> None:
        if stream.capture is not None:
            stream.capture.add(stream, work)
            if self.break_rule == 8 and work.run is not None:
                work.run(work)  # capture runs what it captures
            return
        for awaited in self._followed.get(stream.agent, ()) if self._followed else ():
            queue = self.machine.queues[awaited]
            if queue and work.after is None:
                work.after = queue[-1]
        self.machine.enqueue(work)

    def op(
        self, name: str, run: object, accesses: tuple[object, ...], site: int | None = None
    ) -> Work:
        """A kernel or copy on the current stream."""
        stream = self.current()
        machine = self.machine
        work = Work(
            stream.agent, machine.host(), Kind.ACCESS, name,
            machine.sites.here() if site is None else site,
            run, accesses,  # type: ignore[arg-type]
        )  # fmt: skip
        self.submit(stream, work)
        return work

    def heap(self) -> Heap:
        """Where the current thread's device allocations come from."""
        stream = self.current()
        if stream.capture is not None:
            return stream.capture.heap
        pools = self.local.pools
        return pools[-1] if pools else self.memory.device

    def forbid_in_capture(self, what: str) -> None:
        """CUDA refuses host syncs while the current stream is being captured."""
        if self.current().capture is not None:
            capture_error(self, what)


def capture_error(gpu: GPU, what: str) -> None:
    """Raises as CUDA does for an operation that is not permitted while capturing."""
    for capture in gpu.captures:
        capture.invalid = True
    raise torch.AcceleratorError(
        "CUDA error: operation not permitted when stream is capturing\n"
        f"Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions. ({what})"
    )


_gpu: GPU | None = None


def set_gpu(gpu: GPU | None) -> None:
    global _gpu
    _gpu = gpu


def if_installed() -> GPU | None:
    """The installed virtual GPU, or None: what outlives it must not fail."""
    return _gpu


def gpu() -> GPU:
    """The installed virtual GPU."""
    if _gpu is None:
        raise RuntimeError(
            "a tensor of the virtual GPU was used after it was uninstalled; "
            "return results with .cpu() inside the with block"
        )
    return _gpu
