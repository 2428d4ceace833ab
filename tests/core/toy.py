"""A toy GPU without torch: streams, events, copies, a stream-pool allocator, one host thread.

It is the executable reading of ``redgreen.schedule`` and ``redgreen.trace``: small enough to be
checked by eye, complete enough for the programs of the bug corpus. A subject is a function of a
``Toy`` that returns numbers or buffers (read back by a blocking copy on the default stream).
Memory holds integers, eight bytes each; a kernel mixes what it reads with a number, so any mix-up
of buffers or steps changes the output.
"""

from __future__ import annotations

import random
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from redgreen.faults import Fault
from redgreen.run import Leaf, Outcome, Run
from redgreen.schedule import Order, Schedule
from redgreen.trace import (
    Access,
    Agent,
    Allocation,
    EdgeSite,
    Extent,
    Kind,
    Note,
    Site,
    Step,
    Trace,
)

POLLS = 3  # fruitless polls of one site before the device must progress
ERROR = "CUDA error: device-side assert triggered"


@dataclass(frozen=True, slots=True)
class Buffer:
    """Cells [low, high) of a block in one of its lifetimes."""

    lifetime: int
    memory: int
    low: int
    high: int
    pinned: bool

    def __getitem__(self, part: slice) -> Buffer:
        low, high, _ = part.indices(self.high - self.low)
        return Buffer(self.lifetime, self.memory, self.low + low, self.low + high, self.pinned)


@dataclass(slots=True)
class Stream:
    agent: int
    queue: list[Op] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class Op:
    """A device step that may not have executed yet."""

    step: int
    stream: Stream
    action: Callable[[], None]
    after: Op | None = None  # an event wait: the record it is bound to
    done: bool = False


@dataclass(slots=True, eq=False)
class Event:
    record: Op | None = None


@dataclass(slots=True)
class Pooled:
    buffer: Buffer
    markers: list[tuple[Hashable, Op]]


class Diverged(Exception):
    pass


class Refused(Exception):
    pass


class Toy:
    """One run. Methods named after the notation of the corpus; ``at`` names an edge for a test."""

    def __init__(self, schedule: Schedule, faults: frozenset[Fault], limit: int | None) -> None:
        self.schedule, self.faults, self.limit = schedule, faults, limit
        self.trace = Trace(agents=[Agent(0, "host", True)])
        self.hits: Counter[Fault] = Counter()
        self.changed: Counter[Fault] = Counter()
        self.broken: list[Order] = []
        self.random: Any = random.Random(schedule.seed)
        self._answers = dict(schedule.choices)
        self._orders: dict[str, list[Order]] = {}
        for order in schedule.orders:
            self._orders.setdefault(order.second, []).append(order)
        self._executed: set[str] = set()
        self._waiting: dict[str, Op] = {}
        self._cells: dict[int, list[int]] = {}
        self._streams: list[Stream] = []
        self._pools: dict[int, list[Pooled]] = {}
        self._pinned_pool: list[Pooled] = []
        self._uses: dict[int, list[Op]] = {}
        self._recorded: dict[int, dict[int, list[int]]] = {}
        self._sites: dict[Site, int] = {}
        self._edges: dict[EdgeSite, int] = {}
        self._ordinals: Counter[str] = Counter()
        self._polls: Counter[int] = Counter()
        self._keys = 0
        self.default = self.stream("stream 0")

    # -- memory ---------------------------------------------------------------------------------

    def stream(self, name: str = "") -> Stream:
        agent = Agent(len(self.trace.agents), name or f"stream {len(self._streams)}", False)
        self.trace.agents.append(agent)
        self._streams.append(Stream(agent.id))
        return self._streams[-1]

    def pinned(self, *values: int) -> Buffer:
        """A live pinned block that the host fills."""
        buffer = self._fresh(max(len(values), 1), True, -1)
        self._host("fill", (buffer, False, True), lambda: self._store(buffer, values or (0,)))
        return buffer

    def al(self, stream: Stream, size: int = 1) -> Buffer:
        """Allocate under a stream: the oldest free block of its pool that fits, or a fresh one."""
        pool = self._pools.setdefault(stream.agent, [])
        for entry in list(pool):
            if entry.buffer.high >= size and all(
                self._choice("reuse", key, op, entry.buffer.lifetime) for key, op in entry.markers
            ):
                pool.remove(entry)
                return self._lifetime(entry.buffer.memory, size, False, stream.agent)
        return self._fresh(size, False, stream.agent)

    def al_pinned(self, size: int = 1) -> Buffer:
        """Pinned memory from the host allocator: reused when the streams that used it are done."""
        for entry in list(self._pinned_pool):
            if entry.buffer.high >= size and all(
                self._choice("reuse", key, op, entry.buffer.lifetime) for key, op in entry.markers
            ):
                self._pinned_pool.remove(entry)
                return self._lifetime(entry.buffer.memory, size, True, -1)
        return self._fresh(size, True, -1)

    def rs(self, buffer: Buffer, stream: Stream, at: str = "") -> None:
        edge = self._edge("record_stream", at)
        if self._dropped(edge):
            return
        owner = self.trace.allocations[buffer.lifetime].stream
        if owner == stream.agent:
            self._note("record-stream-on-allocating-stream", "orders nothing")
            return
        users = self._recorded.setdefault(buffer.lifetime, {})
        users.setdefault(stream.agent, []).append(edge)

    def free(self, buffer: Buffer) -> None:
        allocation = self.trace.allocations[buffer.lifetime]
        whole = Buffer(buffer.lifetime, buffer.memory, 0, len(self._cells[buffer.memory]),
                       buffer.pinned)
        if buffer.pinned:
            users = {op.stream.agent: [] for op in self._uses.pop(buffer.lifetime, [])}
        else:
            users = self._recorded.pop(buffer.lifetime, {})
        markers = []
        for agent, edges in users.items():
            key = self._key("marker")
            stream = next(s for s in self._streams if s.agent == agent)
            markers.append((key, self._enqueue(stream, Kind.PUBLISH, "marker", key=key,
                                               edges=tuple(dict.fromkeys(edges)),
                                               allocation=allocation.id)))
        self._host_step(Kind.FREE, "free", allocation=allocation.id)
        pool = self._pinned_pool if buffer.pinned else self._pools.setdefault(allocation.stream, [])
        pool.append(Pooled(whole, markers))

    # -- device work ----------------------------------------------------------------------------

    def k(
        self,
        stream: Stream,
        reads: Sequence[Buffer] | Buffer = (),
        writes: Sequence[Buffer] | Buffer = (),
        value: int = 0,
    ) -> None:
        """A kernel: every cell it writes becomes a mix of all that it reads and ``value``."""
        sources = [reads] if isinstance(reads, Buffer) else list(reads)
        targets = [writes] if isinstance(writes, Buffer) else list(writes)

        def action() -> None:
            mixed = value
            for source in sources:
                for cell in self._load(source):
                    mixed = (mixed * 31 + cell) & 0xFFFF_FFFF
            for target in targets:
                self._store(target, [mixed] * (target.high - target.low))

        self._work(stream, "kernel", sources, targets, action)

    def fill(self, stream: Stream, target: Buffer, value: int) -> None:
        self.k(stream, (), target, value)

    def cp(self, stream: Stream, source: Buffer, target: Buffer, at: str = "",
           staged: bool = False) -> None:
        """An asynchronous copy; memory is read when it executes, or at the call if ``staged``."""
        if staged:
            self.pageable(stream, target, self.rd(source))
        else:
            self._work(stream, "copy", [source], [target],
                       lambda: self._store(target, self._load(source)))
        if source.pinned and not target.pinned:
            self._poison(source, at)

    def pageable(self, stream: Stream, target: Buffer, *values: int) -> None:
        """A copy from pageable memory: staged at the call, the device write still pending."""
        self._work(stream, "copy", [], [target], lambda: self._store(target, values))

    # -- order ----------------------------------------------------------------------------------

    def event(self) -> Event:
        return Event()

    def rec(self, event: Event, stream: Stream, at: str = "") -> None:
        edge = self._edge("record", at)
        if not self._dropped(edge):
            event.record = self._enqueue(
                stream, Kind.PUBLISH, "record", key=("event", id(event)), edges=(edge,)
            )

    def wait(self, stream: Stream, event: Event, at: str = "") -> None:
        edge = self._edge("wait_event", at)
        if self._dropped(edge):
            return
        if event.record is None:
            self._note("wait-on-unrecorded-event", "the event was never recorded: no order")
        self._enqueue(stream, Kind.ACQUIRE, "wait", key=("event", id(event)), edges=(edge,),
                      after=event.record)

    def join(self, stream: Stream, other: Stream, at: str = "") -> None:
        """``stream.wait_stream(other)``, written S<<T in the corpus."""
        edge = self._edge("wait_stream", at)
        if self._dropped(edge):
            return
        key = self._key("wait_stream")
        record = self._enqueue(other, Kind.PUBLISH, "record", key=key, edges=(edge,))
        self._enqueue(stream, Kind.ACQUIRE, "wait", key=key, edges=(edge,), after=record)

    def hsync(self, what: Event | Stream | None = None, at: str = "") -> None:
        """The host waits for an event, a stream, or (None) the device."""
        kind = {Event: "event.synchronize", Stream: "stream.synchronize"}.get(
            type(what), "torch.cuda.synchronize")
        edge = self._edge(kind, at)
        if self._dropped(edge):
            return
        if isinstance(what, Event):
            if what.record is not None:
                self._force(what.record)
            self._host_step(Kind.ACQUIRE, "sync", key=("event", id(what)), edges=(edge,))
            return
        streams = self._streams if what is None else [what]
        self._drain(streams, "sync", (edge,))

    def done(self) -> None:
        """An implicit sync with everything, so that outputs can be read without more edges."""
        self._drain(self._streams, "done", ())

    def query(self, event: Event) -> bool:
        if event.record is None:
            return True
        return self._choice("query", ("event", id(event)), event.record, -1)

    # -- the host -------------------------------------------------------------------------------

    def wr(self, target: Buffer, *values: int) -> None:
        self._host("write", (target, False, True), lambda: self._store(target, values))

    def rd(self, source: Buffer) -> int:
        seen: list[int] = []
        self._host("read", (source, True, False), lambda: seen.extend(self._load(source)))
        return seen[0]

    def item(self, stream: Stream, source: Buffer) -> int:
        """A blocking copy to the host: waits for its stream; not an edge."""
        landing = self._fresh(source.high - source.low, True, -1)
        self._work(stream, "copy", [source], [landing],
                   lambda: self._store(landing, self._load(source)))
        self._drain([stream], "item", ())
        return self.rd(landing)

    def rd_device(self, source: Buffer) -> int:
        """What a device buffer holds, behind ``done``: no step, so that tests stay small."""
        return self._load(source)[0]

    def refuse(self, what: str) -> None:
        self.trace.refusals.append(what)

    # -- execution ------------------------------------------------------------------------------

    def finish(self) -> None:
        for stream in self._streams:
            while stream.queue:
                self._force(stream.queue[0])

    def _pump(self) -> None:
        """What the policy lets the device do after a host step."""
        policy = self.schedule.policy
        if policy == "serial":
            self._run_all(self._streams)
        elif policy == "first":
            self._run_all([s for s in self._streams if self._name(s) == self.schedule.stream], True)
        elif policy == "last":
            self._run_all([s for s in self._streams if self._name(s) != self.schedule.stream])
        elif policy == "random":
            while self._heads() and self.random.random() < 0.5:
                self._execute(self.random.choice(self._heads()))

    def _heads(self) -> list[Op]:
        return [s.queue[0] for s in self._streams if s.queue and self._ready(s.queue[0])]

    def _run_all(self, streams: list[Stream], needs: bool = False) -> None:
        while True:
            heads = [s.queue[0] for s in streams if s.queue]
            ready = [op for op in heads if self._ready(op)]
            if needs and not ready:
                ready = [n for op in heads if (n := self._next(op, frozenset(), False)) is not None]
            if not ready:
                return
            self._execute(min(ready, key=lambda op: op.step))

    def _ready(self, op: Op) -> bool:
        return (op.after is None or op.after.done) and not self._holding(op)

    def _holding(self, op: Op) -> list[Order]:
        orders = self._orders.get(self.trace.steps[op.step].label, ())
        return [o for o in orders if o.first not in self._executed and o not in self.broken]

    def _next(self, op: Op, path: frozenset[int], blocked: bool) -> Op | None:
        """A step that can execute now and that ``op`` needs. ``blocked``: break orders for it."""
        if op.step in path:
            return None
        path |= {op.step}
        head = op.stream.queue[0]
        if head is not op:
            return self._next(head, path, blocked)
        if op.after is not None and not op.after.done:
            return self._next(op.after, path, blocked)
        for order in self._holding(op):
            first = self._waiting.get(order.first)
            found = self._next(first, path, False) if first is not None else None
            if found is not None:
                return found
            if not blocked:
                return None
            self.broken.append(order)
        return op

    def _force(self, op: Op) -> None:
        while not op.done:
            step = self._next(op, frozenset(), True)
            assert step is not None, "event waits cannot form a cycle"
            self._execute(step)

    def _execute(self, op: Op) -> None:
        assert op.stream.queue[0] is op
        op.stream.queue.pop(0)
        op.action()
        op.done = True
        self._ran(op.step)

    def _ran(self, step: int) -> None:
        label = self.trace.steps[step].label
        self._waiting.pop(label, None)
        self._executed.add(label)
        self.trace.execution.append(step)

    # -- steps ----------------------------------------------------------------------------------

    def _work(self, stream: Stream, op: str, sources: list[Buffer], targets: list[Buffer],
              action: Callable[[], None]) -> None:
        accesses = [self._access(b, True, False) for b in sources]
        accesses += [self._access(b, False, True) for b in targets]
        done = self._enqueue(stream, Kind.ACCESS, op, accesses=tuple(accesses), action=action)
        for buffer in (*sources, *targets):
            if buffer.pinned:
                self._uses.setdefault(buffer.lifetime, []).append(done)

    def _enqueue(self, stream: Stream, kind: Kind, op: str, after: Op | None = None,
                 action: Callable[[], None] = lambda: None, **fields: Any) -> Op:
        step = self._step(stream.agent, kind, op, **fields)
        queued = Op(step.index, stream, action, after)
        stream.queue.append(queued)
        self._waiting[step.label] = queued
        self._pump()
        return queued

    def _host_step(self, kind: Kind, op: str, action: Callable[[], None] = lambda: None,
                   **fields: Any) -> None:
        step = self._step(0, kind, op, **fields)
        for order in self._orders.get(step.label, ()):
            first = self._waiting.get(order.first)
            if first is not None:
                self._force(first)
            elif order.first not in self._executed:
                self.broken.append(order)
        action()
        self._ran(step.index)
        self._pump()

    def _host(self, op: str, touched: tuple[Buffer, bool, bool],
              action: Callable[[], None]) -> None:
        self._host_step(Kind.ACCESS, op, action, accesses=(self._access(*touched),))

    def _drain(self, streams: list[Stream], op: str, edges: tuple[int, ...]) -> None:
        for stream in streams:
            if stream.queue:
                self._force(stream.queue[-1])
        self._host_step(Kind.DRAIN, op, targets=tuple(s.agent for s in streams), edges=edges)

    def _choice(self, op: str, key: Hashable, asked: Op, allocation: int) -> bool:
        label = self._label(op, peek=True)
        site = self._site("")
        if self._answers.get(label) is True or self._polls[site] >= POLLS:
            self._force(asked)
        taken = asked.done
        self._polls[site] = 0 if taken else self._polls[site] + 1
        self._host_step(Kind.CHOICE, op, key=key, taken=taken, allocation=allocation)
        return taken

    def _step(self, agent: int, kind: Kind, op: str, **fields: Any) -> Step:
        steps = self.trace.steps
        if self.limit is not None and len(steps) >= self.limit:
            raise Diverged
        step = Step(len(steps), agent, 0, kind, op, self._site(""), self._label(op), **fields)
        steps.append(step)
        return step

    def _label(self, op: str, peek: bool = False) -> str:
        name = f"{self._frame().f_code.co_name}:{op}"
        ordinal = self._ordinals[name]
        if not peek:
            self._ordinals[name] += 1
        return f"{name}#{ordinal}"

    # -- faults, sites, cells -------------------------------------------------------------------

    def _frame(self) -> Any:
        frame = sys._getframe(1)
        while frame.f_code.co_filename == __file__:
            assert frame.f_back is not None
            frame = frame.f_back
        return frame

    def _site(self, at: str) -> int:
        frame = self._frame()
        site = Site(frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name, at)
        if site not in self._sites:
            self._sites[site] = len(self.trace.sites)
            self.trace.sites.append(site)
        return self._sites[site]

    def _edge(self, kind: str, at: str) -> int:
        edge = EdgeSite(kind, self.trace.sites[self._site(at)])
        if edge not in self._edges:
            self._edges[edge] = len(self.trace.edges)
            self.trace.edges.append(edge)
        return self._edges[edge]

    def _dropped(self, edge: int) -> bool:
        fault = Fault("drop", self.trace.edges[edge])
        self.hits[fault] += fault in self.faults
        return fault in self.faults

    def _poison(self, source: Buffer, at: str) -> None:
        fault = Fault("poison", self.trace.edges[self._edge("copy", at)])
        if fault in self.faults:
            self.hits[fault] += 1
            self._host("poison", (source, False, True), lambda: self._store(
                source, [~v & 0xFFFF_FFFF for v in self._load(source)]))
            self.changed[fault] += 8 * (source.high - source.low)

    def _note(self, kind: str, message: str) -> None:
        self.trace.notes.append(Note(kind, self._site(""), message))

    def _key(self, kind: str) -> Hashable:
        self._keys += 1
        return (kind, self._keys)

    def _name(self, stream: Stream) -> str:
        return self.trace.agents[stream.agent].name

    def _fresh(self, size: int, pinned: bool, agent: int) -> Buffer:
        memory = len(self._cells)
        self._cells[memory] = [1_000_003 * (memory + 1)] * size
        return self._lifetime(memory, size, pinned, agent)

    def _lifetime(self, memory: int, size: int, pinned: bool, agent: int) -> Buffer:
        allocations = self.trace.allocations
        allocations.append(
            Allocation(len(allocations), memory, 0, 8 * size, pinned, self._site(""), agent))
        return Buffer(allocations[-1].id, memory, 0, size, pinned)

    def _access(self, buffer: Buffer, reads: bool, writes: bool) -> Access:
        low, high = 8 * buffer.low, 8 * buffer.high
        return Access(buffer.memory, buffer.lifetime, Extent(low, high, high - low), reads, writes)

    def _load(self, buffer: Buffer) -> list[int]:
        return self._cells[buffer.memory][buffer.low : buffer.high]

    def _store(self, buffer: Buffer, values: Sequence[int]) -> None:
        self._cells[buffer.memory][buffer.low : buffer.high] = values


class ToyRunner:
    """Runs a subject on a new Toy each time."""

    def __init__(self, subject: Callable[[Toy], Any]) -> None:
        self.subject = subject
        self.runs = 0

    def machine(self, schedule: Schedule, faults: frozenset[Fault], limit: int | None) -> Toy:
        return Toy(schedule, faults, limit)

    def run(self, schedule: Schedule, faults: frozenset[Fault] = frozenset(),
            step_limit: int | None = None) -> Run:
        self.runs += 1
        toy = self.machine(schedule, faults, step_limit)
        try:
            leaves = tuple(_leaves(toy, self.subject(toy), ""))
            outcome = Outcome("returned", leaves)
            toy.finish()
        except Diverged:
            outcome = Outcome("diverged")
        except ValueError as error:
            outcome = Outcome("raised", (Leaf("", "error", str(error).encode()),), "Traceback")
        return Run(schedule, faults, outcome, toy.trace, dict(toy.hits), tuple(toy.broken),
                   dict(toy.changed))


def _leaves(toy: Toy, value: Any, path: str) -> Iterator[Leaf]:
    if isinstance(value, list | tuple):
        for i, part in enumerate(value):
            yield from _leaves(toy, part, f"{path}[{i}]")
    elif isinstance(value, Buffer):
        number = toy.rd(value) if value.pinned else toy.item(toy.default, value)
        yield Leaf(path, "tensor int64 (1,)", number.to_bytes(8, "little"))
    else:
        yield Leaf(path, type(value).__name__, repr(value).encode())
