"""Stand-ins for the sync calls of ``torch.cuda``: a step in the trace, then the call itself.

The classes stay torch's own. A fault is the call not made. A host sync first lets the device do
what it waits for, so the real call that follows finds nothing closed in front of it.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import torch
from torch.autograd import Variable

from ..trace import Kind
from ..virtual.patches import Patches
from ..virtual.work import Work
from .graphs import GraphMethods
from .session import EventState, Session, StreamState

_empty_cache: Callable[[], None] = getattr(torch._C, "_cuda_emptyCache", lambda: None)
_fresh = itertools.count(1)


class Facade:
    """All stand-ins of one session."""

    def __init__(self, session: Session) -> None:
        self.s = session
        stream: Any = torch.cuda.Stream
        event: Any = torch.cuda.Event
        self._stream_new, self._event_new = stream.__new__, event.__new__
        self._stream_sync = stream.synchronize
        self._record, self._wait = event.record, event.wait
        self._event_sync, self._event_query = event.synchronize, event.query
        self._elapsed = event.elapsed_time
        self._synchronize: Any = torch.cuda.synchronize
        self._sleep: Any = torch.cuda._sleep

    def install(self, patches: Patches) -> None:
        stream, event = torch.cuda.Stream, torch.cuda.Event
        graphs = GraphMethods(self.s)
        methods: list[tuple[Any, str, Any]] = [
            (stream, "__new__", staticmethod(self.new_stream)),
            (stream, "wait_event", lambda me, e: self.wait_event(me, e)),
            (stream, "wait_stream", lambda me, other: self.wait_stream(me, other)),
            (stream, "record_event", lambda me, e=None: self.record_event(me, e)),
            (stream, "query", lambda me: self.stream_query(me)),
            (stream, "synchronize", lambda me: self.stream_synchronize(me)),
            (event, "__new__", staticmethod(self.new_event)),
            (event, "record", lambda me, stream=None: self.record(me, stream)),
            (event, "wait", lambda me, stream=None: self.wait_event(stream, me)),
            (event, "query", lambda me: self.event_query(me)),
            (event, "synchronize", lambda me: self.event_synchronize(me)),
            (event, "elapsed_time", lambda me, end: self.elapsed_time(me, end)),
            (torch.Tensor, "record_stream", lambda me, stream: self.record_stream(me, stream)),
            *graphs.patches(),
        ]
        for owner, name, value in methods:
            patches.set(owner, name, value)
        patches.set(torch.cuda, "synchronize", self.synchronize)
        patches.set(torch.cuda, "_sleep", self.sleep)
        for owner in (torch.cuda, torch.cuda.memory):
            patches.set(owner, "empty_cache", self.empty_cache)
        self._generic(patches)
        patches.rebind()
        engine = _Engine(self.s, Variable._execution_engine)
        patches.set(Variable, "_execution_engine", engine)

    def _generic(self, patches: Patches) -> None:
        """The names that work for any accelerator mean the same classes."""
        patches.set(torch, "Stream", torch.cuda.Stream)
        patches.set(torch, "Event", torch.cuda.Event)
        patches.set(torch.accelerator, "synchronize", self.synchronize)
        patches.set(torch.accelerator, "current_stream", torch.cuda.current_stream)
        patches.set(torch.accelerator, "set_stream", torch.cuda.set_stream)
        patches.set(torch.accelerator, "empty_cache", self.empty_cache)

    # -- streams ---------------------------------------------------------------------------------

    def new_stream(self, cls: Any, device: Any = None, priority: int = 0, **kwargs: Any) -> Any:
        made = self._stream_new(cls, device, priority, **kwargs)
        if not kwargs:  # a handle of a stream that exists has its id or pointer
            self.s.pool_stream(made.cuda_stream, max(-5, min(0, priority)))
        return made

    def _state(self, stream: Any) -> StreamState:
        return self.s.current() if stream is None else self.s.stream(stream.cuda_stream)

    def _event(self, event: Any) -> EventState:
        state: EventState | None = getattr(event, "_redgreen", None)
        if state is None or state.session is not self.s:
            state = event._redgreen = self.s.new_event(timing=False)
        return state

    def wait_event(self, stream: Any, event: Any) -> None:
        s = self.s
        state = self._event(event)
        captured = self._state(stream).capture is not None or state.capture is not None
        edge, dropped = s.machine.edge("wait_event", captured)
        if dropped:
            return
        s.machine.turn("wait")
        if state.work is None:
            s.machine.note(
                "wait-on-unrecorded-event", s.machine.trace_site(edge),
                "the event was never recorded when the wait was issued: the wait orders nothing",
            )  # fmt: skip
        with s.atomic():
            self._bind(stream, event, state, (edge,))

    def _bind(self, stream: Any, event: Any, state: EventState, edges: tuple[int, ...]) -> None:
        """Issues the wait; it binds to the event's latest record, here and now."""
        s = self.s
        target = self._state(stream)
        where = torch.cuda.current_stream() if stream is None else stream
        s.calling("wait_event", lambda: self._wait(event, where))
        if state.capture is not None and target.capture is None and state.capture in s.captures:
            state.capture.join(target)
        s.issue(target, Work(target.agent, s.machine.host(), Kind.ACQUIRE, "wait",
                             s.machine.sites.here(), key=state.key, after=state.work,
                             edges=edges))  # fmt: skip

    def wait_stream(self, stream: Any, other: Any) -> None:
        s = self.s
        captured = any(self._state(each).capture is not None for each in (stream, other))
        edge, dropped = s.machine.edge("wait_stream", captured)
        if dropped:
            return
        event: Any = torch.cuda.Event()
        state = EventState(("wait_stream", next(_fresh)), s)
        with s.atomic():
            self._publish(event, state, other, (edge,))
            self._bind(stream, event, state, (edge,))

    def _publish(self, event: Any, state: EventState, stream: Any, edges: tuple[int, ...]) -> None:
        s = self.s
        source = self._state(stream)
        where = torch.cuda.current_stream() if stream is None else stream
        s.calling("record", lambda: self._record(event, where))
        op = "timing record" if state.timing else "record"
        work = Work(source.agent, s.machine.host(), Kind.PUBLISH, op, s.machine.sites.here(),
                    key=state.key, edges=edges)  # fmt: skip
        s.issue(source, work)
        state.work, state.capture = work, source.capture

    def record_event(self, stream: Any, event: Any) -> Any:
        if event is None:
            event = torch.cuda.Event()
        self.record(event, stream)
        return event

    def stream_query(self, stream: Any) -> bool:
        machine, state = self.s.machine, self._state(stream)
        machine.turn("query")
        queue = machine.queues[state.agent]
        pending = [queue[-1]] if queue else []
        if not pending and not machine.issued(state.agent):
            return True
        answer = machine.choice("query", pending, targets=(state.agent,))
        if answer:
            self.s.calling("stream.synchronize", lambda: self._stream_sync(stream))
        return answer

    def stream_synchronize(self, stream: Any) -> None:
        machine = self.s.machine
        edge, dropped = machine.edge("stream.synchronize")
        if not dropped:
            state = self._state(stream)
            if state.capture is None:
                machine.drain("stream.synchronize", (state.agent,), (edge,))
            self.s.calling("stream.synchronize", lambda: self._stream_sync(stream))

    # -- events ----------------------------------------------------------------------------------

    def new_event(self, cls: Any, enable_timing: bool = False, *args: Any, **kwargs: Any) -> Any:
        made = self._event_new(cls, enable_timing, *args, **kwargs)
        made._redgreen = self.s.new_event(timing=bool(enable_timing))
        return made

    def record(self, event: Any, stream: Any) -> None:
        captured = self._state(stream).capture is not None
        edge, dropped = self.s.machine.edge("record", captured)
        if not dropped:
            with self.s.atomic():
                self._publish(event, self._event(event), stream, (edge,))

    def event_query(self, event: Any) -> bool:
        state = self._event(event)
        self.s.machine.turn("query")
        if state.work is None:
            return True
        if state.capture is not None:  # torch refuses, in its own words
            return bool(self._event_query(event))
        answer = self.s.machine.choice("query", [state.work], state.key)
        if answer:
            self.s.calling("event.synchronize", lambda: self._event_sync(event))
        return answer

    def event_synchronize(self, event: Any) -> None:
        machine = self.s.machine
        edge, dropped = machine.edge("event.synchronize")
        if dropped:
            return
        state = self._event(event)
        machine.turn("event.synchronize")
        if state.capture is not None:  # torch refuses, in its own words
            self._event_sync(event)
        if state.work is None:
            machine.note(
                "wait-on-unrecorded-event", machine.trace_site(edge),
                "event.synchronize() on an event that was never recorded returns at once",
            )  # fmt: skip
        machine.acquire("event.synchronize", state.key, state.work, (edge,))
        self.s.calling("event.synchronize", lambda: self._event_sync(event))

    def elapsed_time(self, event: Any, end: Any) -> float:
        self.event_query(event)
        self.event_query(end)
        machine = self.s.machine
        machine.note("clock", machine.sites.here(), "elapsed_time was read")
        return float(self._elapsed(event, end))

    # -- the device ------------------------------------------------------------------------------

    def synchronize(self, device: Any = None) -> None:
        """The host waits for all work of the device."""
        machine = self.s.machine
        edge, dropped = machine.edge("torch.cuda.synchronize")
        if not dropped:
            if not self.s.captures:
                machine.drain("torch.cuda.synchronize", self.s.agents(), (edge,))
            self.s.calling("torch.cuda.synchronize", lambda: self._synchronize(device))

    def sleep(self, cycles: int) -> None:
        self.s.launch("_sleep", lambda: self._sleep(cycles), lambda _: ())

    def empty_cache(self) -> None:
        """cudaFree waits for the device, so nothing may be held any more."""
        machine = self.s.machine
        for queue in machine.queues.values():
            while queue:
                machine.force(queue[-1])
        self.s.calling("torch.cuda.empty_cache", _empty_cache)
        self.s.blocks.forget_segments()

    def record_stream(self, tensor: torch.Tensor, stream: Any) -> None:
        s = self.s
        edge, dropped = s.machine.edge("record_stream")
        if dropped:
            return
        block, agent = s.blocks.of(tensor), self._state(stream).agent
        if block is not None and agent == block.stream:
            s.machine.note(
                "record-stream-on-allocating-stream", s.machine.trace_site(edge),
                "record_stream on the stream that allocated the tensor does nothing",
            )  # fmt: skip
        elif block is not None:
            block.recorded.setdefault(agent, set()).add(edge)
        s.driver.record_stream(tensor, stream)


class _Engine:
    """Stands in for ``torch.autograd.Variable._execution_engine``: backward on this thread."""

    def __init__(self, session: Session, original: Any) -> None:
        self._session, self._original = session, original
        self.queue_callback = original.queue_callback
        self.is_checkpoint_valid = original.is_checkpoint_valid

    def run_backward(self, *args: Any, **kwargs: Any) -> Any:
        machine = self._session.machine
        used = {w.agent for w in machine.works
                if w.kind is Kind.ACCESS and w.agent in machine.queues}
        if len(used | {self._session.current().agent}) > 1:
            self._session.refuse("a backward pass of a program on several streams: the waits that "
                                 "autograd adds are not followed on a real GPU yet")
        threads = torch._C._is_multithreading_enabled()
        torch._C._set_multithreading_enabled(False)
        try:
            return self._original.run_backward(*args, **kwargs)
        finally:
            torch._C._set_multithreading_enabled(threads)
