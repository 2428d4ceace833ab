"""Random programs that are nearly right.

Statements are drawn first; where one conflicts with an earlier one of another agent, a sync call is
put before it. Then some calls are left out and some doubled, so that there are races, redundant
edges and edges that cover each other.
"""

from __future__ import annotations

from random import Random
from typing import Literal

from .program import (
    SYNCS,
    Allocate,
    Buffer,
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
    Repeat,
    Simple,
    Statement,
    SyncDevice,
    SyncEvent,
    SyncStream,
    Wait,
    WaitStream,
    edges,
    is_edge,
)

MAX_EDGES = 6
HOST = -1  # an agent; the others are streams
KINDS = ("kernel", "upload", "download", "read", "write", "fetch", "sync", "ask")
WEIGHTS = (6, 3, 3, 2, 2, 0.7, 1, 0.4)
KERNELS: tuple[Literal["fill", "add", "mul", "gather", "copy"], ...]
KERNELS = ("fill", "add", "add", "mul", "gather", "copy")


def generate(seed: int) -> Program:
    """The program of a seed: the first draw with few enough edges."""
    random = Random(seed)
    while True:
        program = _Generator(random).program()
        if 1 <= len(edges(program)) <= MAX_EDGES:
            return program


class _Generator:
    def __init__(self, random: Random) -> None:
        self._random = random
        self._streams = random.choice((2, 2, 3))
        self._pieces = random.choice((1, 1, 2))
        self._events = 0
        self._scratch = random.random() < 0.3
        self._body: list[Statement] = []
        self._touched: dict[str, list[tuple[int, bool, int]]] = {}  # agent, writes, when
        self._synced: dict[tuple[int, int], int] = {}  # from, to: how far
        self._clock = 0
        self._buffers = self._make_buffers()

    def program(self) -> Program:
        for _ in range(self._random.randint(2, 5)):
            self._operation()
        if self._scratch:
            self._scratch_buffers()
        for buffer in self._buffers:
            if buffer.where != "pageable":
                self._order(0 if buffer.where == "device" else HOST, buffer.name, False)
        body = self._mutated(self._body)
        dtype: Literal["int64", "float32"] = self._random.choice(("int64", "float32"))
        return Program(self._pieces, "int64" if self._scratch else dtype, self._streams,
                       self._events, tuple(self._buffers), tuple(body))

    def _make_buffers(self) -> list[Buffer]:
        random = self._random
        found = [Buffer(f"d{i}", "device", random.randint(0, 3), random.randrange(self._streams))
                 for i in range(random.randint(1, 2))]
        found += [Buffer(f"p{i}", "pinned", random.randint(0, 3))
                  for i in range(random.randint(0, 2))]
        found += [Buffer("h0", "pageable", random.randint(0, 3))] * (random.random() < 0.3)
        return found

    # -- operations -----------------------------------------------------------------------------

    def _operation(self) -> None:
        random = self._random
        stream = random.randrange(self._streams)
        host = [b for b in self._buffers if b.where != "device"]
        kind = random.choices(KINDS, WEIGHTS)[0]
        if not host and kind in ("upload", "download", "read", "write"):
            kind = "kernel"
        device = random.choice([b for b in self._buffers if b.where == "device"])
        low, high = self._range()
        part = Part(device.name, low, high)
        if kind == "kernel":
            self._kernel(stream, part)
        elif kind == "fetch":
            self._order(stream, device.name, False)
            self._body.append(Fetch(stream, part))
        elif kind == "ask":
            if self._events:
                self._body.append(Query(random.randrange(self._events), "ask"))
        elif kind == "sync":
            self._sync(random.randrange(-1, self._streams), stream)
        else:
            other = random.choice(host)
            self._with_host(kind, stream, part, Part(other.name, low, high))

    def _range(self) -> tuple[int, int]:
        if self._pieces == 2 and self._random.random() < 0.25:
            low = self._random.randrange(2)
            return low, low + 1
        return 0, self._pieces

    def _kernel(self, stream: int, dst: Part) -> None:
        random = self._random
        op = random.choice(KERNELS)
        others = [b.name for b in self._buffers if b.where == "device" and b.name != dst.buffer]
        if op in ("mul", "gather", "copy") and not others:
            op = "add"
        src = None
        if op in ("mul", "gather", "copy"):
            src = Part(random.choice(others), dst.low, dst.high)
            self._order(stream, src.buffer, False)
        self._order(stream, dst.buffer, True)
        self._body.append(Kernel(stream, op, dst, random.randint(2, 5), src))

    def _with_host(self, kind: str, stream: int, device: Part, host: Part) -> None:
        non_blocking = self._random.random() < 0.8
        if kind == "upload":
            self._order(stream, host.buffer, False)
            self._order(stream, device.buffer, True)
            self._body.append(Copy(stream, device, host, non_blocking))
        elif kind == "download":
            self._order(stream, device.buffer, False)
            self._order(stream, host.buffer, True)
            self._body.append(Copy(stream, host, device, non_blocking))
        else:
            self._order(HOST, host.buffer, kind == "write")
            value = self._random.randint(6, 9)
            self._body.append(HostRead(host) if kind == "read" else HostWrite(host, value))

    def _scratch_buffers(self) -> None:
        """Buffers that are made, used on another stream and freed, so that memory is reused."""
        random = self._random
        home = random.randrange(self._streams)
        target = random.choice([b for b in self._buffers if b.where == "device"])
        body, before = [], self._body
        for i in range(random.randint(1, 2)):
            self._body = []
            name, user = f"t{i}", random.randrange(self._streams)
            whole, dst = Part(name, 0, self._pieces), Part(target.name, 0, self._pieces)
            self._body.append(Allocate(name, home))
            self._body.append(Kernel(home, "fill", whole, random.randint(2, 9)))
            self._note(home, name, True)
            self._order(user, name, False)
            self._order(user, target.name, True)
            self._body.append(Kernel(user, random.choice(("gather", "copy")), dst, 0, whole))
            if user != home:
                if random.random() < 0.7:
                    self._body.append(RecordStream(name, user))
                else:
                    self._sync(user, random.choice((home, HOST)))
            self._body.append(Free(name))
            body.append(self._body)
        self._body = before
        if len(body) == 1 and random.random() < 0.8:
            simple = tuple(s for s in body[0] if not isinstance(s, Repeat))
            self._body.append(Repeat(2, simple))
        else:
            self._body += [statement for part in body for statement in part]

    # -- order ----------------------------------------------------------------------------------

    def _note(self, agent: int, name: str, writes: bool) -> None:
        self._clock += 1
        self._touched.setdefault(name, []).append((agent, writes, self._clock))

    def _order(self, agent: int, name: str, writes: bool) -> None:
        """Sync calls before an access, for what it conflicts with."""
        latest: dict[int, int] = {}
        for other, wrote, when in self._touched.get(name, ()):
            if other not in (agent, HOST) and (writes or wrote):
                latest[other] = when
        for other, when in latest.items():
            if self._synced.get((other, agent), 0) < when and self._random.random() < 0.93:
                self._sync(other, agent)
        self._note(agent, name, writes)

    def _sync(self, before: int, after: int) -> None:
        """What ``before`` was given comes before what ``after`` gets from now on."""
        random = self._random
        if before in (after, HOST):
            return
        self._synced[before, after] = self._clock
        ways = ["event", "event", "stream", "host", "device"]
        how = random.choice(ways if after != HOST else ["event", "host", "host", "device", "query"])
        if how == "event":
            event = self._event(before)
            self._body.append(SyncEvent(event) if after == HOST else Wait(event, after))
        elif how == "query":
            ways_to_ask: list[Literal["poll", "unless"]] = ["poll", "unless", "unless"]
            self._body.append(Query(self._event(before), random.choice(ways_to_ask)))
        elif how == "stream":
            self._body.append(WaitStream(after, before))
        else:
            self._body.append(SyncStream(before) if how == "host" else SyncDevice())
            self._synced |= {(before, other): self._clock for other in range(self._streams)}

    def _event(self, stream: int) -> int:
        """A new event or an old one, recorded."""
        if self._events < 2 and (self._events == 0 or self._random.random() < 0.7):
            self._events += 1
            event = self._events - 1
        else:
            event = self._random.randrange(self._events)
        self._body.append(Record(event, stream))
        return event

    def _mutated(self, body: list[Statement]) -> list[Statement]:
        random = self._random
        lose, double = random.choice(((0, 0), (0, 0.3), (0.1, 0.1), (0.3, 0.1)))
        found: list[Statement] = []
        for statement in body:
            if isinstance(statement, Repeat):
                inner = tuple(s for s in statement.body if not (
                    isinstance(s, SYNCS) and random.random() < lose))
                found.append(Repeat(statement.times, inner))
            elif not is_edge(statement):
                found.append(statement)
            elif random.random() >= lose:
                found.append(statement)
                if random.random() < double:
                    found.append(self._another(statement))
        if random.random() < 0.2 and len(found) > 2:
            found = self._looped(found)
        return found

    def _another(self, statement: Statement) -> Statement:
        """A second call that orders much the same."""
        if isinstance(statement, Wait | WaitStream) and self._random.random() < 0.5:
            return self._random.choice((SyncDevice(), SyncStream(statement.stream)))
        return statement

    def _looped(self, body: list[Statement]) -> list[Statement]:
        start = self._random.randrange(len(body) - 1)
        inner = body[start : start + self._random.randint(2, 4)]
        if any(isinstance(s, Repeat | Allocate | Free) for s in inner):
            return body
        simple: tuple[Simple, ...] = tuple(s for s in inner if not isinstance(s, Repeat))
        return [*body[:start], Repeat(2, simple), *body[start + len(inner) :]]
