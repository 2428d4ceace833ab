"""One run on the real device: the order in which its steps execute, and the trace of it.

What may execute when is decided by the same `Machine` as on the virtual GPU: policies, orders,
choices and labels mean the same on both. The difference is what a device step is. Here its kernel
has been launched on the real stream when the step is issued, behind a gate; that the machine
executes the step means that the gate is opened and that the device has said that it is done. A
call that waits for the device inside (``.item()``, a blocking copy) is made when its step executes:
by then its stream is empty and open.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..faults import Fault
from ..run import Record
from ..schedule import Order, Schedule
from ..trace import Access, Extent, Kind
from ..virtual.machine import Machine
from ..virtual.work import Work
from .blocks import Blocks
from .driver import Driver
from .gates import Gate, Gates

if TYPE_CHECKING:
    from .graphs import Capture

POOL_STREAMS = 32  # per priority; CUDAStream.cpp, kStreamsPerPool


@dataclass(slots=True, eq=False)
class StreamState:
    """One device queue, by its raw handle."""

    agent: int
    handle: int
    capture: Capture | None = None


@dataclass(slots=True, eq=False)
class EventState:
    """The latest record of an event. ``work`` is None before the first."""

    key: Hashable
    session: Session
    work: Work | None = None
    capture: Capture | None = None
    timing: bool = False


class Session:
    """State of one run."""

    def __init__(
        self, driver: Driver, schedule: Schedule, faults: frozenset[Fault],
        step_limit: int | None, held: bool = True,
    ) -> None:  # fmt: skip
        self.machine = Machine(schedule, faults, step_limit)
        self.driver = driver
        self.gates = Gates(driver, held)
        self.blocks = Blocks(self.machine, driver)
        self.blocks.milestone = self._milestone
        self.machine.host()  # agent 0 is the thread that made the session
        self.default = StreamState(self.machine.new_stream("stream 0"), 0)
        self.streams: dict[int, StreamState] = {0: self.default}
        self.captures: list[Capture] = []  # under way
        self.graphs = self.launches = 0
        self.closed = False
        self.held: list[Order] = []  # seen to hold: the second had not run when the first had
        self._pools: dict[int, int] = {}  # priority -> streams taken so far
        self._events = self._staged = 0
        self._gate_of: dict[str, Gate] = {}  # label of a step in an order
        if schedule.torn:
            self.refuse("a kernel of a real GPU cannot be stopped half way: steps in two parts "
                        "are for the virtual GPU")

        if any(fault.action == "cut" for fault in faults):
            self.refuse("what a graph captured is in the real graph: a dependency inside of it can "
                        "be cut on the virtual GPU only")
        if any(fault.action not in ("drop", "cut", "poison", "wait") for fault in faults):
            self.refuse("mutants are made on the virtual GPU only")

    def refuse(self, message: str) -> None:
        """Remembers what is not followed: no verdict is proved past a refusal."""
        if message not in self.machine.trace.refusals:
            self.machine.trace.refusals.append(message)

    def _milestone(self, agent: int) -> Callable[[Work], object]:
        state = next(state for state in self.streams.values() if state.agent == agent)
        if state.capture is not None:  # it would become a node of the graph
            return lambda _: None
        gate = self.gates.milestone(state.handle)
        return lambda _: self.gates.pass_through(gate)

    # -- streams and events ----------------------------------------------------------------------

    def stream(self, handle: int) -> StreamState:
        state = self.streams.get(handle)
        if state is None:  # not from torch's pool
            name = f"stream {1000 + len(self.streams)}"
            state = self.streams[handle] = StreamState(self.machine.new_stream(name), handle)
        return state

    def pool_stream(self, handle: int, priority: int) -> None:
        """A stream was taken from the pool; the 33rd of a priority is the first again."""
        turn = self._pools.get(priority, 0)
        self._pools[priority] = turn + 1
        if handle not in self.streams:
            name = f"stream {1 + turn % POOL_STREAMS - priority * 100}"
            self.streams[handle] = StreamState(self.machine.new_stream(name), handle)

    def current(self) -> StreamState:
        return self.stream(self.driver.current())

    def agents(self) -> tuple[int, ...]:
        return tuple(self.machine.queues)

    def new_event(self, timing: bool) -> EventState:
        self._events += 1
        return EventState(("event", self._events), self, timing=timing)

    # -- device steps ----------------------------------------------------------------------------

    def launch(
        self, name: str, call: Callable[[], Any], accesses: Callable[[Any], tuple[Access, ...]],
        site: int | None = None,
    ) -> Any:  # fmt: skip
        """Makes an asynchronous call on the current stream, behind a gate."""
        where = self.machine.sites.here() if site is None else site
        with self.atomic():
            stream = self.current()
            gate = self.gates.close(stream.handle, captured=stream.capture is not None)
            try:
                result = self.calling(name, call)
            except BaseException:
                self.gates.open(gate)  # nothing is behind it
                raise
            self.gates.mark(gate)
            work = Work(stream.agent, self.machine.host(), Kind.ACCESS, name, where)
            work.accesses = accesses(result)
            if stream.capture is not None:
                stream.capture.add(stream, work, gate)
            else:
                self.enqueue(work, gate)
        return result

    def issue(self, stream: StreamState, work: Work) -> None:
        """Work that needs no gate: what it does on the real stream is done in stream order."""
        if stream.capture is not None:
            stream.capture.add(stream, work)
        else:
            self.machine.enqueue(work)

    @contextmanager
    def atomic(self) -> Iterator[None]:
        """No other host thread runs inside: what is enqueued on the stream and what the machine
        has in its queue come in one order."""
        machine = self.machine
        step = machine.before_step
        if step is not None:
            step()
        machine.before_step = None
        try:
            yield
        finally:
            machine.before_step = step

    def enqueue(self, work: Work, gate: Gate) -> None:
        """The machine executes the step: its gate is opened and the device does it."""
        watched = self.machine.watched

        def run(w: Work) -> None:
            self.gates.pass_through(gate)
            if watched:
                self.observe(w.label)

        work.run = run
        self.machine.enqueue(work)
        if work.label in watched and not work.done:
            self._gate_of[work.label] = gate

    def calling(self, name: str, call: Callable[[], Any]) -> Any:
        """A call into torch that the watchdog can name."""
        watchdog = self.gates.watchdog
        if watchdog is None:
            return call()
        before, watchdog.calling = watchdog.calling, name
        try:
            result = call()
        finally:
            watchdog.calling = before
        self.gates.check()
        return result

    def synchronous(
        self, name: str, call: Callable[[], Any], reads: tuple[Access, ...], lands: bool = True
    ) -> Any:
        """A call that waits for the stream inside; ``lands``: the host then has what it read."""
        stream, box = self.current(), []
        staged: tuple[Access, ...] = ()
        if lands:
            wrote, read = self.staging()
            reads, staged = (*reads, wrote), (read,)

        def run(work: Work) -> None:
            with self.driver.on(stream.handle):
                box.append(self.calling(name, call))

        machine = self.machine
        here = machine.sites.here()
        with self.atomic():
            work = Work(stream.agent, machine.host(), Kind.ACCESS, name, here, run, reads)
            machine.enqueue(work)
            machine.drain(name, (stream.agent,))
        if lands:
            self.host_access(f"host {name}", staged)
        if not box:  # a sticky error, which the drain raises; else the step did not run
            raise RuntimeError(f"{name} did not run")
        return box[0]

    def staging(self) -> tuple[Access, Access]:
        """Host memory that a blocking copy lands in: the device's write and the host's read."""
        self._staged += 1
        memory = -self._staged
        here = self.machine.sites.here()
        lifetime = self.machine.allocation(memory, 0, 1, True, here, -1)
        where = Extent(0, 1, 1)
        return Access(memory, lifetime, where, False, True), Access(
            memory, lifetime, where, True, False
        )

    def host_access(self, name: str, accesses: tuple[Access, ...]) -> None:
        """The host reads or writes pinned memory right after this."""
        work = self.machine.host_access(name, accesses)
        if self.machine.watched:
            self.observe(work.label)

    # -- did the gates hold? ---------------------------------------------------------------------

    def observe(self, label: str) -> None:
        """The step has run: what the schedule holds until then must not have."""
        for order in self.machine.schedule.orders:
            if order.first == label and order not in self.machine.broken:
                gate = self._gate_of.get(order.second)
                second = self.machine.watched.get(order.second)
                if gate is None or second is None or second.done:
                    continue
                if self.gates.done(gate):
                    self.refuse(f"the gate of {order.second} did not hold")
                elif order not in self.held:
                    self.held.append(order)

    # -- the end ---------------------------------------------------------------------------------

    def finish(self) -> Record:
        machine = self.machine
        trace = machine.finish()
        self.blocks.closed = self.closed = True
        watchdog = self.gates.watchdog
        if watchdog is not None and watchdog.fired:
            self.refuse(watchdog.fired)
        held = tuple(order for order in self.held if order not in machine.broken)
        return Record(trace, machine.hits, tuple(machine.broken), machine.changed,
                      tuple(machine.given_up), held)
