"""What a run did: agents, steps, accesses, allocations.

A trace is written by a backend (the virtual GPU, a real one, or a toy in the tests) and read by the
core. It is in *issue order*: the order in which the host threads made their calls. Under the serial
schedule it is also the order of execution; under any other, ``Trace.execution`` says what ran when.

Everything that orders two agents is written with two primitives, so that each has one rule:

* PUBLISH(key) saves what its agent has done so far under ``key`` (event record, lock release,
  thread start, the marker that the allocator leaves on a ``record_stream``-ed stream at a free).
* ACQUIRE(key) makes its agent come after what was last published under ``key`` in issue order
  (event wait, event synchronize, lock acquire, join, reuse of a block). Nothing published: no-op,
  as CUDA has it for an event that was never recorded (cudaStreamWaitEvent).

``wait_stream`` is a PUBLISH under a fresh key and an ACQUIRE, both carried by the same edge.
DRAIN makes a host agent come after everything issued so far to the ``targets`` (stream and device
synchronize, blocking copies).

A blocking copy to the host (``.item()``, a returned output) is a copy into a host memory of its
own, a DRAIN without edges, and the host's read of that memory.

CHOICE asks how far the device is, and names what it looked at: the latest PUBLISH under ``key``
(event query, the marker of a freed block) or everything issued to the ``targets`` (stream query).
Taken, it is an ACQUIRE as well. Where the order decides the answer it is no choice.

A free first publishes its markers, one per ``record_stream``-ed stream (PUBLISH steps whose
``allocation`` is the lifetime that ends and whose ``edges`` are the record_stream calls), then the
FREE step. An allocation asks a CHOICE, ``allocation`` set again, about each marker that decides
which block it takes. Under the stream-ordered allocator the allocating stream has a marker too,
without edges, and nothing is asked about markers that the order puts before the allocation.
"""

from __future__ import annotations

import enum
from collections.abc import Hashable
from dataclasses import dataclass, field
from typing import NamedTuple


class Kind(enum.Enum):
    ACCESS = "access"  # a kernel, a copy, a host read or write
    PUBLISH = "publish"
    ACQUIRE = "acquire"
    DRAIN = "drain"
    FREE = "free"  # storage died; not an access, kept for reports and diagnostics
    CHOICE = "choice"  # the device's progress decided: query(), reuse of a block


@dataclass(frozen=True, slots=True)
class Site:
    """A place in the program: the innermost frame that is not torch's, and torch's innermost."""

    file: str
    line: int
    function: str
    code: str = ""
    torch_frame: str = ""  # "torch/cuda/streams.py:39 wait_stream", "" where the call has none


@dataclass(frozen=True, slots=True)
class EdgeSite:
    """A sync call site: what a verdict is about. One per (file, line, kind, torch frame)."""

    kind: str  # wait_event, wait_stream, record, event.synchronize, stream.synchronize, ...
    site: Site


@dataclass(frozen=True, slots=True)
class Agent:
    """Who executes: a host thread or a stream (a branch of a graph counts as a stream)."""

    id: int  # index in Trace.agents
    name: str  # "host", "host thread-1", "stream 0", "stream 3", "graph 1 branch 2"
    host: bool


@dataclass(frozen=True, slots=True)
class Extent:
    """Bytes of one memory: ``run`` bytes at every point of a lattice that begins at ``start``.

    ``lattice`` has a (count, stride in bytes) per dimension, outermost first, strides positive;
    empty means the single run ``[start, start + run)``. ``stop`` is one past the last byte.
    """

    start: int
    stop: int
    run: int
    lattice: tuple[tuple[int, int], ...] = ()


class Access(NamedTuple):  # a tuple: there are millions, and they are made fast
    """Bytes that a step reads, writes or both. ``memory`` is physical: lifetimes share it."""

    memory: int  # a segment of device memory or a pinned host block; ids never reused
    lifetime: int  # index in Trace.allocations
    extent: Extent
    reads: bool
    writes: bool


class Allocation(NamedTuple):
    """One lifetime of a range of memory."""

    id: int
    memory: int
    start: int
    size: int  # bytes asked for
    pinned: bool  # host memory; else device memory
    site: int  # index in Trace.sites
    stream: int = -1  # agent that allocated, -1 for host memory


@dataclass(frozen=True, slots=True)
class Step:
    """One thing an agent does.

    ``edges`` are the sync call sites that made the step: the step vanishes from the order when all
    of them are suppressed; a step without any cannot be suppressed (program order, ``.item()``).
    ``label`` names the step without line numbers: "function:op#ordinal", unique in its trace.
    """

    index: int
    agent: int  # who executes
    issuer: int  # the host agent that made the call; equals ``agent`` for host steps
    kind: Kind
    op: str
    site: int  # index in Trace.sites
    label: str
    accesses: tuple[Access, ...] = ()
    key: Hashable = None  # PUBLISH, ACQUIRE
    targets: tuple[int, ...] = ()  # DRAIN: agents
    edges: tuple[int, ...] = ()  # indices in Trace.edges
    taken: bool = False  # CHOICE: which way it went (query true, block reused)
    allocation: int = -1  # FREE, its markers, CHOICE of a reuse: which one died
    launch: int = 0  # which launch of a graph made the step; 0: none did
    current: int = -1  # PUBLISH, ACQUIRE of a sync call: the stream that was current at the call


@dataclass(frozen=True, slots=True)
class Note:
    """Something that is no difference in bytes but that the reader wants to know."""

    kind: str  # wait-on-unrecorded-event, record-stream-on-allocating-stream, escaped, ...;
    # clock: the program looked at one, of interest only where two runs differ
    site: int
    message: str


@dataclass(slots=True)
class Trace:
    """All of a run. Tables are indexed by the ids that the steps carry."""

    agents: list[Agent] = field(default_factory=list)
    sites: list[Site] = field(default_factory=list)
    edges: list[EdgeSite] = field(default_factory=list)
    allocations: list[Allocation] = field(default_factory=list)
    steps: list[Step] = field(default_factory=list)  # issue order; steps[i].index == i
    execution: list[int] = field(default_factory=list)  # step indices as they executed
    one_pool: bool = False  # streams take each other's freed device memory (stream-ordered)
    notes: list[Note] = field(default_factory=list)
    refusals: list[str] = field(default_factory=list)  # what the backend could not run
    escapes: list[str] = field(default_factory=list)  # blocks whose host accesses are not seen
    suspects: list[str] = field(default_factory=list)  # blocks of which that cannot be excluded
