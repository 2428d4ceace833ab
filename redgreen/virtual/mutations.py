"""Faults that move or redirect sync calls, or change what an allocation gives.

Installed only in runs that have one of them. What each does to the order is said once more, for
traces, by `redgreen.moves`.
"""

from __future__ import annotations

import itertools
import weakref
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..faults import Fault
from ..moves import wrong_stream
from ..trace import EdgeSite, Kind, Site
from .memory import Block
from .work import Work

if TYPE_CHECKING:
    from .captures import Capture
    from .gpu import GPU, EventState, StreamState

Allocate = Callable[..., Block]  # (bytes, stream, site)

CALLS = frozenset({"early", "late", "stream"})
MEMORY = frozenset({"collapse", "free", "unpin"})
_marks = itertools.count(1)


@dataclass(frozen=True, slots=True)
class _Sync:
    """A host sync that is late: made when its thread has made another access."""

    since: int  # accesses of the thread at the call
    call: Callable[[], None]


class Mutations:
    """The faults of one run, and what is put off because of them."""

    def __init__(self, gpu: GPU, faults: Iterable[Fault]) -> None:
        self._gpu, self._machine = gpu, gpu.machine
        self._faults: dict[tuple[str, EdgeSite], Fault] = {
            (f.action, f.edge): f for f in faults if f.action in CALLS | MEMORY
        }
        self._early = any(action == "early" for action, _ in self._faults)
        # Per stream, and capture that it is in: before its latest access; waits that are late.
        self._marked: dict[tuple[int, Capture | None], Work] = {}
        self._waits: dict[tuple[int, Capture | None], list[Callable[[], None]]] = {}
        self._syncs: dict[int, list[_Sync]] = {}  # by host agent
        self._accessed: Counter[int] = Counter()  # accesses of each host agent in `_counted` steps
        self._counted = 0
        # Of a ring that collapses: by pinned or not, and size.
        self._first: dict[tuple[Fault, bool, int], weakref.ref[Block]] = {}
        self._lives: dict[int, int] = {}  # lifetime -> uses that are left
        self._blocks: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()
        self._lived: dict[int, Fault] = {}  # lifetime -> what ends it
        self._allocated: Counter[Site] = Counter()  # at each site, of `_known` allocations
        self._known = 0
        self._seen = 0  # steps whose accesses were counted

    @staticmethod
    def needed(faults: Iterable[Fault]) -> bool:
        return any(fault.action in CALLS | MEMORY for fault in faults)

    def _at(self, action: str, edges: tuple[int, ...]) -> Fault | None:
        """The fault of a call, which is reached now."""
        for edge in edges:
            fault = self._faults.get((action, self._machine.trace.edges[edge]))
            if fault is not None:
                self._machine.hits[fault] += 1
                return fault
        return None

    def _changed(self, fault: Fault) -> None:
        self._machine.changed[fault] = self._machine.changed.get(fault, 0) + 1

    # -- calls -----------------------------------------------------------------------------------

    def redirected(self, stream: StreamState, edges: tuple[int, ...]) -> StreamState:
        """The stream on which a record, a wait or a record_stream is made."""
        fault = self._at("stream", edges)
        if fault is None:
            return stream
        gpu = self._gpu
        wrong = wrong_stream(stream.agent, gpu.current().agent, gpu.default.agent)
        if wrong == stream.agent:
            return stream
        self._changed(fault)
        return next(state for state in gpu.streams.values() if state.agent == wrong)

    def recorded_early(
        self, event: EventState, stream: StreamState, edges: tuple[int, ...]
    ) -> bool:
        """Whether the event now marks what it would have before the stream's latest access."""
        fault = self._at("early", edges)
        mark = self._marked.get((stream.agent, stream.capture)) if fault is not None else None
        if fault is None or mark is None:
            return False
        self._changed(fault)
        event.own = self.own_key(event)
        event.key, event.work, event.capture = mark.key, mark, stream.capture
        return True

    def own_key(self, event: EventState) -> Hashable:
        """What an event publishes under, also if its latest record was early."""
        early = isinstance(event.key, tuple) and event.key[0] == "early"
        return event.own if early else event.key

    def before(self, stream: StreamState, work: Work) -> None:
        """An access or a launch is about to be issued to the stream."""
        if self._early:
            mark = Work(stream.agent, work.issuer, Kind.PUBLISH, "early record", work.site,
                        key=("early", next(_marks)))  # fmt: skip
            self._gpu.submit(stream, mark)
            self._marked[stream.agent, stream.capture] = mark

    def late_wait(
        self, event: EventState, stream: StreamState, edges: tuple[int, ...],
        wait: Callable[[], None],
    ) -> bool:  # fmt: skip
        """Whether the wait is put off until the stream was given something more."""
        fault = self._at("late", edges)
        if fault is None:
            return False
        if event.capture is not None and stream.capture is None:
            event.capture.join(stream)  # what is late is the dependency, not the membership

        def make() -> None:
            self._changed(fault)
            wait()

        self._waits.setdefault((stream.agent, stream.capture), []).append(make)
        return True

    def after(self, stream: StreamState) -> None:
        """An access or a launch was issued to the stream."""
        self._free()
        for wait in self._waits.pop((stream.agent, stream.capture), ()):
            wait()

    def end(self, capture: Capture) -> None:
        """Waits of a capture that ends are made at last, or its branches would not be joined."""
        for stream in list(capture.streams):
            self.after(stream)

    def late_sync(self, edge: int, call: Callable[[], None]) -> bool:
        """Whether a host sync is put off until the host has accessed something more."""
        fault = self._at("late", (edge,))
        if fault is None:
            return False
        self._changed(fault)
        me = self._machine.host()
        self._syncs.setdefault(me, []).append(_Sync(self._accesses_of(me), call))
        return True

    def _accesses_of(self, host: int) -> int:
        """How many a thread has made so far. Each step is looked at once."""
        works = self._machine.works
        while self._counted < len(works):
            work = works[self._counted]
            self._accessed[work.agent] += work.kind is Kind.ACCESS
            self._counted += 1
        return self._accessed[host]

    # -- memory ----------------------------------------------------------------------------------

    def _of_memory(self, action: str, site: int) -> Fault | None:
        edge = EdgeSite("allocation", self._machine.sites.sites[site])
        fault = self._faults.get((action, edge))
        if fault is not None:
            self._machine.hits[fault] += 1
        return fault

    def allocate(self, nbytes: int, stream: int, site: int, plain: Allocate) -> Block:
        """What an allocation gives."""
        ring = self._of_memory("collapse", site)
        if ring is not None:
            slot = ring, stream < 0, nbytes  # pinned memory stays apart
            reference = self._first.get(slot)
            first = None if reference is None else reference()
            if first is not None and not first.dead:
                self._changed(ring)
                return first
        block = plain(nbytes, stream, site)
        if ring is not None:
            self._first[slot] = weakref.ref(block)
        short = self._of_memory("free", site)
        if short is not None:
            turn = self._turn(short)
            uses = short.uses[turn] if turn < len(short.uses) else 0
            if uses:
                self._lives[block.allocation], self._lived[block.allocation] = uses, short
                self._blocks[block.allocation] = block
        return block

    def _turn(self, fault: Fault) -> int:
        """How many allocations there were at the fault's site before the latest."""
        trace = self._machine.trace
        for allocation in trace.allocations[self._known :]:
            self._allocated[trace.sites[allocation.site]] += 1
        self._known = len(trace.allocations)
        return self._allocated[fault.edge.site] - 1

    def unpins(self, site: int) -> bool:
        """Whether this pinned allocation is an ordinary one."""
        fault = self._of_memory("unpin", site)
        if fault is not None:
            self._changed(fault)
        return fault is not None

    def _free(self) -> None:
        """Storages whose last use has been issued die, whoever still refers to them."""
        works = self._machine.works
        while self._lives and self._seen < len(works):
            work = works[self._seen]
            self._seen += 1
            for lifetime in {access.lifetime for access in work.accesses} & self._lives.keys():
                self._lives[lifetime] -= 1
                block = self._blocks.get(lifetime)
                if self._lives[lifetime] or block is None:
                    continue
                del self._lives[lifetime]
                if not block.captured and not block.dead:
                    self._changed(self._lived[lifetime])
                    block.release()

    # -- progress --------------------------------------------------------------------------------

    def step(self) -> None:
        """Before each step of the program: host syncs that are due are made."""
        if not self._syncs:
            return
        me = self._machine.host()
        put_off, made = self._syncs.pop(me, []), self._accesses_of(me)
        due = [s for s in put_off if s.since < made]
        if len(due) < len(put_off):
            self._syncs[me] = [s for s in put_off if s not in due]
        for sync in due:
            sync.call()
