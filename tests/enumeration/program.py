"""A small language of GPU programs: one host thread, a few streams, buffers of one or two pieces.

A piece is what hardware reads and writes as one (eight bytes). Values are small integers, so that
arithmetic is exact. Statements say what the host calls, in program order; `enumerate` says what may
come of it, `render` writes the same program as torch.cuda source.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Where = Literal["device", "pinned", "pageable"]


@dataclass(frozen=True, slots=True)
class Buffer:
    """Memory that exists from the start, or a device buffer that an `Allocate` makes."""

    name: str
    where: Where
    value: int = 0  # of every piece, at the start
    home: int = 0  # the stream that allocates it


@dataclass(frozen=True, slots=True)
class Part:
    """Pieces [low, high) of a buffer."""

    buffer: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Kernel:
    """fill: dst = k. add: dst += k. mul: dst = src * k. gather: dst += src. copy: dst = src."""

    stream: int
    op: Literal["fill", "add", "mul", "gather", "copy"]
    dst: Part
    k: int = 0
    src: Part | None = None


@dataclass(frozen=True, slots=True)
class Copy:
    """Between host and device, either way."""

    stream: int
    dst: Part
    src: Part
    non_blocking: bool


@dataclass(frozen=True, slots=True)
class Fetch:
    """``out.append(d.tolist())`` on a stream: waits for it."""

    stream: int
    src: Part


@dataclass(frozen=True, slots=True)
class HostRead:
    src: Part


@dataclass(frozen=True, slots=True)
class HostWrite:
    dst: Part
    value: int


@dataclass(frozen=True, slots=True)
class Record:
    event: int
    stream: int


@dataclass(frozen=True, slots=True)
class Wait:
    event: int
    stream: int


@dataclass(frozen=True, slots=True)
class WaitStream:
    stream: int  # that waits
    awaited: int


@dataclass(frozen=True, slots=True)
class SyncEvent:
    event: int


@dataclass(frozen=True, slots=True)
class SyncStream:
    stream: int


@dataclass(frozen=True, slots=True)
class SyncDevice:
    pass


@dataclass(frozen=True, slots=True)
class Allocate:
    """``torch.empty`` on a stream."""

    buffer: str
    stream: int


@dataclass(frozen=True, slots=True)
class Free:
    """``del``: the last reference goes."""

    buffer: str


@dataclass(frozen=True, slots=True)
class RecordStream:
    buffer: str
    stream: int


@dataclass(frozen=True, slots=True)
class Query:
    """ask: the answer is output. poll: until it is yes. unless: synchronizes if it is no."""

    event: int
    how: Literal["ask", "poll", "unless"]


@dataclass(frozen=True, slots=True)
class Repeat:
    """A loop: its sync calls are one site each, with several instances."""

    times: int
    body: tuple[Simple, ...]


Sync = Record | Wait | WaitStream | SyncEvent | SyncStream | SyncDevice | RecordStream
Simple = (Kernel | Copy | Fetch | HostRead | HostWrite | Sync | Allocate | Free | Query)
Statement = Simple | Repeat

SYNCS = (Record, Wait, WaitStream, SyncEvent, SyncStream, SyncDevice, RecordStream)


@dataclass(frozen=True, slots=True)
class Program:
    """Returned are: what was output on the way, all pinned buffers, then the device buffers that
    are alive, read on stream 0."""

    pieces: int
    dtype: Literal["int64", "float32"]
    streams: int
    events: int
    buffers: tuple[Buffer, ...]
    body: tuple[Statement, ...]

    def returned(self) -> tuple[list[str], list[str]]:
        """Names of the pinned and of the device buffers that are returned."""
        device = [b.name for b in self.buffers if b.where == "device"]
        for _, statement in unrolled(self):
            if isinstance(statement, Allocate):
                device.append(statement.buffer)
            elif isinstance(statement, Free):
                device.remove(statement.buffer)
        return [b.name for b in self.buffers if b.where == "pinned"], device


def numbered(program: Program) -> Iterator[tuple[int, Simple]]:
    """Each statement of the source once, with its site: its number in the source."""
    site = 0
    for statement in program.body:
        for inner in statement.body if isinstance(statement, Repeat) else (statement,):
            yield site, inner
            site += 1


def unrolled(program: Program) -> Iterator[tuple[int, Simple]]:
    """Statements in the order in which the host gets to them, with their sites."""
    site = 0
    for statement in program.body:
        body = statement.body if isinstance(statement, Repeat) else (statement,)
        for _ in range(statement.times if isinstance(statement, Repeat) else 1):
            yield from enumerate(body, site)
        site += len(body)


def edges(program: Program) -> list[int]:
    """Sites of the sync calls that can be taken out."""
    return [site for site, statement in numbered(program) if is_edge(statement)]


def is_edge(statement: Simple) -> bool:
    unless = isinstance(statement, Query) and statement.how == "unless"
    return unless or isinstance(statement, SYNCS)
