"""A program as what each agent does: a queue of items for each stream, a list of acts for the host.

The host issues in program order whatever the device does, so all queues are known beforehand; what
stays open is when each item executes, and which block an allocation takes. Sites that are
suppressed are left out here, which leaves events at their older records.

Host memory and outputs are cells (-1, slot), device memory is (lifetime, piece).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from .program import (
    Allocate,
    Copy,
    Fetch,
    Free,
    HostRead,
    HostWrite,
    Kernel,
    Part,
    Program,
    Query,
    Record,
    RecordStream,
    Simple,
    SyncDevice,
    SyncEvent,
    SyncStream,
    Wait,
    WaitStream,
    is_edge,
    unrolled,
)

Cell = tuple[int, int]
Point = tuple[int, int]  # the first so many items of a stream
HOST = -1


@dataclass(frozen=True, slots=True)
class Task:
    """One piece of a kernel, copy or host access: reads, then a write."""

    op: str
    k: int
    reads: tuple[Cell, ...]
    write: Cell


@dataclass(frozen=True, slots=True)
class Access:
    tasks: tuple[Task, ...]


@dataclass(frozen=True, slots=True)
class Mark:
    """A record, or what the allocator leaves in a stream at a free."""


@dataclass(frozen=True, slots=True)
class Until:
    """Goes on when these are done; the host's waits, and the streams'."""

    points: tuple[Point, ...]


@dataclass(frozen=True, slots=True)
class Take:
    """An allocation. ``after``: what its stream comes after on the device, whatever happens."""

    lifetime: int
    stream: int
    after: tuple[Point, ...] = ()


@dataclass(frozen=True, slots=True)
class Give:
    """A free."""

    lifetime: int


@dataclass(frozen=True, slots=True)
class Ask:
    """query(): the answer goes to a cell, or decides whether the next act is left out."""

    point: Point
    answer: Cell | None


Item = Access | Mark | Until
Act = Access | Until | Take | Give | Ask


@dataclass(slots=True)
class Lowered:
    """``issued[i][s]``: how many items stream s has been given before act i."""

    pieces: int
    queues: list[list[Item]]
    acts: list[Act] = field(default_factory=list)
    issued: list[tuple[int, ...]] = field(default_factory=list)
    cells: list[int] = field(default_factory=list)  # host cells at the start
    outputs: list[list[int]] = field(default_factory=list)  # slots of each output's pieces
    homes: list[int] = field(default_factory=list)  # of each lifetime: the allocating stream
    values: list[int] = field(default_factory=list)  # of the lifetimes there are at the start
    markers: dict[int, tuple[Point, ...]] = field(default_factory=dict)  # of a lifetime's free


def lower(program: Program, dropped: frozenset[int] = frozenset(),
          allocator: str = "native") -> Lowered:
    return _Lowering(program, allocator).run(dropped)


class _Lowering:
    def __init__(self, program: Program, allocator: str) -> None:
        self._program, self._allocator = program, allocator
        self._known: list[dict[int, int]] = [{} for _ in range(program.streams)]
        self._marked: dict[Point, dict[int, int]] = {}
        self._low = Lowered(program.pieces, [[] for _ in range(program.streams)])
        self._names: dict[str, Callable[[int], Cell]] = {}
        self._lifetimes: dict[str, int] = {}
        self._pageable: set[str] = set()
        self._events: dict[int, Point] = {}
        self._recorded: dict[int, set[int]] = {}
        for buffer in program.buffers:
            if buffer.where == "device":
                self._low.values.append(buffer.value)
                self._live(buffer.name, buffer.home)
            else:
                self._host(buffer.name, [buffer.value] * program.pieces)
            if buffer.where == "pageable":
                self._pageable.add(buffer.name)

    def run(self, dropped: frozenset[int]) -> Lowered:
        for site, statement in unrolled(self._program):
            gone = site in dropped
            assert not gone or is_edge(statement)
            if not gone:
                self._statement(statement)
        pinned, device = self._program.returned()
        for name in pinned:
            self._read(Part(name, 0, self._program.pieces))
        for name in device:
            self._fetch(0, Part(name, 0, self._program.pieces))
        self._low.issued.append(self._counts())
        return self._low

    # -- memory ---------------------------------------------------------------------------------

    def _live(self, name: str, home: int) -> int:
        lifetime = len(self._low.homes)
        self._low.homes.append(home)
        self._lifetimes[name] = lifetime
        self._names[name] = lambda piece: (lifetime, piece)
        return lifetime

    def _host(self, name: str, values: list[int]) -> Callable[[int], Cell]:
        base = len(self._low.cells)
        self._low.cells += values
        found = self._names[name] = lambda piece: (HOST, base + piece)
        return found

    def _cells(self, part: Part) -> list[Cell]:
        return [self._names[part.buffer](piece) for piece in range(part.low, part.high)]

    def _output(self, count: int) -> list[Cell]:
        base = len(self._low.cells)
        self._low.cells += [0] * count
        self._low.outputs.append(list(range(base, base + count)))
        return [(HOST, base + i) for i in range(count)]

    # -- agents ---------------------------------------------------------------------------------

    def _counts(self) -> tuple[int, ...]:
        return tuple(len(queue) for queue in self._low.queues)

    def _act(self, act: Act) -> None:
        self._low.acts.append(act)
        self._low.issued.append(self._counts())

    def _enqueue(self, stream: int, item: Item) -> Point:
        self._low.queues[stream].append(item)
        point = stream, len(self._low.queues[stream])
        known = self._known[stream]
        if isinstance(item, Until):
            for other in item.points:
                for agent, count in (*self._marked.get(other, {}).items(), other):
                    known[agent] = max(known.get(agent, 0), count)
        elif isinstance(item, Mark):
            self._marked[point] = dict(known)
        return point

    def _all(self, stream: int) -> Point:
        return stream, len(self._low.queues[stream])

    def _read(self, part: Part) -> None:
        cells = self._cells(part)
        self._act(Access(_moves(cells, self._output(len(cells)))))

    def _fetch(self, stream: int, part: Part) -> None:
        cells = self._cells(part)
        done = self._enqueue(stream, Access(_moves(cells, self._output(len(cells)))))
        self._act(Until((done,)))

    # -- statements -----------------------------------------------------------------------------

    def _statement(self, s: Simple) -> None:
        match s:
            case Kernel():
                self._kernel(s)
            case Copy():
                self._copy(s)
            case Fetch():
                self._fetch(s.stream, s.src)
            case HostRead():
                self._read(s.src)
            case HostWrite():
                self._act(Access(tuple(Task("fill", s.value, (), c) for c in self._cells(s.dst))))
            case Allocate() | Free() | RecordStream():
                self._memory(s)
            case Query():
                self._query(s)
            case _:
                self._sync(s)

    def _kernel(self, s: Kernel) -> None:
        dst = self._cells(s.dst)
        src = self._cells(s.src) if s.src else dst
        tasks = []
        for into, out_of in zip(dst, src, strict=True):
            reads = {"fill": (), "add": (into,), "gather": (into, out_of)}.get(s.op, (out_of,))
            tasks.append(Task(s.op, s.k, reads, into))
        self._enqueue(s.stream, Access(tuple(tasks)))

    def _copy(self, s: Copy) -> None:
        dst, src = self._cells(s.dst), self._cells(s.src)
        blocks = not s.non_blocking or s.dst.buffer in self._pageable
        if s.src.buffer in self._pageable:  # consumed by the call
            staged = self._host("staging", [0] * len(src))
            taken = [staged(i) for i in range(len(src))]
            self._act(Access(_moves(src, taken)))
            src = taken
        done = self._enqueue(s.stream, Access(_moves(src, dst)))
        if blocks:
            self._act(Until((done,)))

    def _memory(self, s: Allocate | Free | RecordStream) -> None:
        if isinstance(s, Allocate):
            after = (*self._known[s.stream].items(), self._all(s.stream))
            self._act(Take(self._live(s.buffer, s.stream), s.stream, after))
            return
        lifetime = self._lifetimes[s.buffer]
        used = self._recorded.setdefault(lifetime, set())
        if isinstance(s, RecordStream):
            if s.stream != self._low.homes[lifetime]:
                used.add(s.stream)
            return
        if self._allocator == "stream-ordered":
            used.add(self._low.homes[lifetime])
        self._low.markers[lifetime] = tuple(self._enqueue(u, Mark()) for u in sorted(used))
        self._act(Give(lifetime))

    def _query(self, s: Query) -> None:
        point = self._events.get(s.event)
        if s.how == "ask":
            (cell,) = self._output(1)
            if point is None:
                self._act(Access((Task("fill", 1, (), cell),)))
            else:
                self._act(Ask(point, cell))
        elif point is not None:
            if s.how == "unless":
                self._act(Ask(point, None))
            self._act(Until((point,)))

    def _sync(self, s: Simple) -> None:
        match s:
            case Record():
                self._events[s.event] = self._enqueue(s.stream, Mark())
            case Wait():
                if s.event in self._events:
                    self._enqueue(s.stream, Until((self._events[s.event],)))
            case WaitStream():
                self._enqueue(s.stream, Until((self._enqueue(s.awaited, Mark()),)))
            case SyncEvent():
                if s.event in self._events:
                    self._act(Until((self._events[s.event],)))
            case SyncStream():
                self._act(Until((self._all(s.stream),)))
            case SyncDevice():
                self._act(Until(tuple(map(self._all, range(self._program.streams)))))
            case _:
                raise AssertionError(s)


def _moves(src: list[Cell], dst: list[Cell]) -> tuple[Task, ...]:
    return tuple(Task("copy", 0, (a,), b) for a, b in zip(src, dst, strict=True))
