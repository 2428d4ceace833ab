"""``torch.cuda.Stream`` and ``torch.cuda.Event`` of the virtual GPU.

CUDA's event rules (cudaEventRecord, cudaStreamWaitEvent): a record marks the work enqueued so far;
a wait binds to the latest record issued before the wait call; recording again does not move waits
that were issued; waiting on an event that was never recorded does nothing.
"""

from __future__ import annotations

import itertools
import time
from functools import partial
from types import TracebackType
from typing import Any

import torch

from ..trace import Kind
from .gpu import GPU, EventState, StreamState, capture_error, gpu
from .work import Work

_fresh_keys = itertools.count(1)


class Stream:
    """A stream from the pool of its priority; non-blocking towards the default stream.

    Made with ``stream_id``, it is another handle of that stream.
    """

    def __init__(
        self,
        device: Any = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int | None = None,
        stream_ptr: int | None = None,
    ) -> None:
        g = gpu()
        if stream_ptr is not None:
            stream_id = stream_ptr - _HANDLE if stream_ptr else 0
        if stream_id is not None:
            self._state = g.streams[stream_id]
        else:
            self._state = g.pool_stream(max(-5, min(0, priority)))

    @classmethod
    def of(cls, state: StreamState) -> Stream:
        made = cls.__new__(cls)
        made._state = state
        return made

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", 0)

    @property
    def device_index(self) -> int:
        return 0

    @property
    def device_type(self) -> int:
        return 1

    @property
    def stream_id(self) -> int:
        return self._state.id

    @property
    def cuda_stream(self) -> int:
        """The raw handle: 0 for the default stream."""
        return self._state.id and _HANDLE + self._state.id

    native_handle = cuda_stream

    @property
    def priority(self) -> int:
        return self._state.priority

    @staticmethod
    def priority_range() -> tuple[int, int]:
        return (0, -5)

    @property
    def _as_parameter_(self) -> Any:
        import ctypes

        return ctypes.c_void_p(self.cuda_stream)

    def __cuda_stream__(self) -> tuple[int, int]:
        return (0, self.cuda_stream)

    def wait_event(self, event: Event) -> None:
        """Later work of this stream comes after what ``event`` marks now."""
        wait_event(gpu(), self._state, event._state, "wait_event")

    def wait_stream(self, stream: Stream) -> None:
        """Later work of this stream comes after the work enqueued on ``stream`` so far."""
        g = gpu()
        captured = self._state.capture is not None or stream._state.capture is not None
        edge, dropped = g.machine.edge("wait_stream", captured)
        if dropped:
            return
        event = EventState(("wait_stream", next(_fresh_keys)))
        record(g, event, stream._state, (edge,))
        bind(g, self._state, event, (edge,))
        if g.break_rule == 5 and stream._state.capture is None:
            g.follow(self._state, stream._state)

    def record_event(self, event: Event | None = None) -> Event:
        if event is None:
            event = Event()
        event.record(self)
        return event

    def query(self) -> bool:
        """Is all work enqueued on this stream done?"""
        g = gpu()
        g.forbid_in_capture("stream query")
        g.machine.turn("query")
        queue = g.machine.queues[self._state.agent]
        pending = [queue[-1]] if queue else []
        if g.break_rule == 10:
            return True
        if not pending and not g.machine.issued(self._state.agent):
            return True
        return g.machine.choice("query", pending, targets=(self._state.agent,))

    def synchronize(self) -> None:
        """The host waits for all work enqueued on this stream."""
        g = gpu()
        edge, dropped = g.machine.edge("stream.synchronize")
        if dropped:
            return
        if self._state.capture is not None:
            capture_error(g, "stream synchronize")
        wait = partial(g.machine.drain, "stream.synchronize", (self._state.agent,), (edge,))
        if g.mutations is None or not g.mutations.late_sync(edge, wait):
            wait()

    def is_capturing(self) -> bool:
        return self._state.capture is not None

    def __enter__(self) -> Stream:
        self._before = [*getattr(self, "_before", []), gpu().current()]
        gpu().switch(self._state)
        return self

    def __exit__(self, *_: object) -> None:
        gpu().switch(self._before.pop())

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream) and other._state is self._state

    def __hash__(self) -> int:
        return hash(("cuda", self._state.id))

    def __repr__(self) -> str:
        return f"<torch.cuda.Stream device=cuda:0 cuda_stream={self.cuda_stream:#x}>"


_HANDLE = 0x5500_0000


class CudaStream(Stream):
    """``torch.cuda.Stream``; what ``torch.Stream`` makes is one as well."""


class ExternalStream(CudaStream):
    """A stream given by its raw handle."""

    def __init__(self, stream_ptr: int, device: Any = None, **_: Any) -> None:
        super().__init__(stream_ptr=stream_ptr)


class Event:
    """A marker in a stream."""

    def __init__(
        self,
        device: Any = None,
        *,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
    ) -> None:
        self._state = gpu().new_event()
        self._state.timing = enable_timing

    @property
    def device(self) -> torch.device:
        return torch.device("cuda", 0)

    @property
    def event_id(self) -> int:
        return 0 if self._state.work is None else self._state.key[1]  # type: ignore[index]

    cuda_event = event_id

    def record(self, stream: Stream | None = None) -> None:
        """Marks the work enqueued on ``stream`` (current stream) so far."""
        g = gpu()
        state = g.current() if stream is None else stream._state
        edge, dropped = g.machine.edge("record", state.capture is not None)
        if not dropped:
            record(g, self._state, state, (edge,))

    def wait(self, stream: Stream | None = None) -> None:
        """Later work of ``stream`` (current stream) comes after what the event marks now."""
        g = gpu()
        wait_event(g, g.current() if stream is None else stream._state, self._state, "wait_event")

    def query(self) -> bool:
        """Is what the event marks done? True for an event that was never recorded."""
        g = gpu()
        if self._state.capture is not None:
            capture_error(g, "event query")
        g.machine.turn("query")
        work = self._state.work
        if work is None or g.break_rule == 10:
            return True
        return g.machine.choice("query", [work], self._state.key)

    def synchronize(self) -> None:
        """The host waits for what the event marks now; at once if it was never recorded."""
        g = gpu()
        edge, dropped = g.machine.edge("event.synchronize")
        if dropped:
            return
        if self._state.capture is not None or g.current().capture is not None:
            capture_error(g, "event synchronize")
        g.machine.turn("event.synchronize")
        if self._state.work is None:
            g.machine.note(
                "wait-on-unrecorded-event", g.machine.trace_site(edge),
                "event.synchronize() on an event that was never recorded returns at once",
            )  # fmt: skip
        state = self._state

        def wait() -> None:
            g.machine.acquire("event.synchronize", state.key, state.work, (edge,))

        if g.mutations is None or not g.mutations.late_sync(edge, wait):
            wait()

    def elapsed_time(self, end_event: Event) -> float:
        """Milliseconds between two records' calls: a clock, other in every run, as on CUDA."""
        start, end = self._state.time, end_event._state.time
        if not (self._state.timing and end_event._state.timing):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if start is None or end is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if not (self.query() and end_event.query()):
            raise RuntimeError("Both events must be completed before calculating elapsed time.")
        machine = gpu().machine
        machine.note("clock", machine.sites.here(), "elapsed_time was read")
        return (end - start) / 1e6

    def ipc_handle(self) -> bytes:
        gpu().refuse("Event.ipc_handle: other processes are not modelled")
        raise NotImplementedError("the virtual GPU has no events shared between processes")

    def __repr__(self) -> str:
        return f"<torch.cuda.Event {self.event_id:#x}>"


def record(g: GPU, event: EventState, stream: StreamState, edges: tuple[int, ...]) -> None:
    """Publishes the stream's work so far under the event's key."""
    machine = g.machine
    if edges and g.mutations is not None:
        if machine.trace.edges[edges[0]].kind == "record":  # a wait_stream is one as a wait
            stream = g.mutations.redirected(stream, edges)
        if g.mutations.recorded_early(event, stream, edges):
            event.time = time.perf_counter_ns()
            return
        event.key = g.mutations.own_key(event)
    op = "timing record" if event.timing else "record"
    work = Work(
        stream.agent, machine.host(), Kind.PUBLISH, op, machine.sites.here(),
        key=event.key, edges=edges,
    )  # fmt: skip
    work.current = g.current().agent if edges else -1
    g.submit(stream, work)
    if g.break_rule == 4:
        g.first_record.setdefault(event.key, work)
    event.capture = stream.capture
    event.work = work
    event.time = time.perf_counter_ns()


def wait_event(g: GPU, stream: StreamState, event: EventState, kind: str) -> None:
    captured = stream.capture is not None or event.capture is not None
    edge, dropped = g.machine.edge(kind, captured)
    if dropped:
        return
    g.machine.turn("wait")
    if event.work is None:
        g.machine.note(
            "wait-on-unrecorded-event", g.machine.trace_site(edge),
            "the event was never recorded when the wait was issued: the wait orders nothing",
        )  # fmt: skip
    bind(g, stream, event, (edge,))


def bind(g: GPU, stream: StreamState, event: EventState, edges: tuple[int, ...]) -> None:
    """Issues the wait; it binds to the event's latest record, here and now."""
    site = g.machine.sites.here()
    if edges and g.mutations is not None:
        stream = g.mutations.redirected(stream, edges)
        wait = partial(_bind, g, stream, event, edges, site)
        if g.mutations.late_wait(event, stream, edges, wait):
            return
    _bind(g, stream, event, edges, site)


def _bind(
    g: GPU, stream: StreamState, event: EventState, edges: tuple[int, ...], site: int
) -> None:
    if event.capture is not None and stream.capture is None:
        event.capture.join(stream)
    if stream.capture is not None and event.work is not None and event.capture is None:
        stream.capture.isolation()
    after = event.work
    if g.break_rule == 4 and after is not None:
        after = g.first_record[event.key]
    work = Work(
        stream.agent, g.machine.host(), Kind.ACQUIRE, "wait", site, key=event.key, after=after,
        edges=edges,
    )  # fmt: skip
    work.current = g.current().agent if edges else -1
    g.submit(stream, work)


class StreamContext:
    """``with torch.cuda.stream(s):`` makes ``s`` the current stream of this thread."""

    def __init__(self, stream: Stream | None) -> None:
        self.stream = stream
        self._before: list[StreamState | None] = []

    def __enter__(self) -> None:
        self._before.append(gpu().current())
        if self.stream is not None:
            gpu().switch(self.stream._state)

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        gpu().switch(self._before.pop())
