"""A device without a GPU for the recorder: streams that only know FIFO, events, words and graphs.

Device tensors are meta tensors: operators on them reach a dispatch mode as those on CUDA do. The
device makes progress whenever somebody looks at a word, as far as the gates let it.
"""

from __future__ import annotations

import contextlib
import itertools
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from redgreen.faults import Fault
from redgreen.schedule import SERIAL, Schedule
from redgreen.silicon import Recording
from redgreen.silicon.gates import SIZE
from redgreen.silicon.session import Record, Session
from redgreen.virtual.patches import Patches

Command = tuple[str, Any]  # what a stream does: "wait" or "write" a word, "record", "after"


class Device:
    """Streams as queues of commands."""

    def __init__(self) -> None:
        self.queues: dict[int, deque[Command]] = {0: deque()}
        self.recorded: set[int] = set()  # versions of events that are complete
        self.capture: list[tuple[int, Command]] | None = None
        self.captured_streams: set[int] = set()
        self.versions = itertools.count(1)
        self.handles = itertools.count(0x100)

    def enqueue(self, stream: int, command: Command) -> None:
        if self.capture is not None and stream in self.captured_streams:
            self.capture.append((stream, command))
        else:
            self.queues.setdefault(stream, deque()).append(command)

    def launch(self, stream: int, origin: int, nodes: list[tuple[int, Command]]) -> None:
        """Branches run on queues of their own; the origin's nodes on the launching stream."""
        renamed: dict[int, int] = {}
        places: dict[int, int] = {origin: stream}
        for branch, (what, value) in nodes:
            if branch not in places:
                places[branch] = next(self.handles)
                fork = next(self.versions)
                self.queues[stream].append(("record", fork))
                self.queues[places[branch]] = deque([("after", fork)])
            if what in ("record", "after"):
                value = renamed.setdefault(value, next(self.versions))
            self.queues[places[branch]].append((what, value))


class Words:
    """What the host and the streams share; a look lets the device go on."""

    def __init__(self, device: Device, size: int) -> None:
        self._device, self._words = device, [0] * size
        self.running = True

    def __setitem__(self, place: int, value: int) -> None:
        self._words[place] = value

    def __getitem__(self, place: int) -> int:
        self._progress()
        return self._words[place]

    def _progress(self) -> None:
        moved = self.running
        while moved:
            moved = False
            for queue in list(self._device.queues.values()):
                while queue and self._step(*queue[0]):
                    queue.popleft()
                    moved = True

    def _step(self, what: str, value: Any) -> bool:
        if what == "wait":
            return self._words[value] == 1
        if what == "after":
            return value in self._device.recorded
        if what == "record":
            self._device.recorded.add(value)
        else:
            self._words[value] = 1
        return True

    def idle(self) -> bool:
        self._progress()
        return not any(self._device.queues.values())


class FakeDriver:
    """The `Driver` of such a device."""

    device_type = "meta"

    def __init__(self) -> None:
        self.device = Device()
        self.words: Any = Words(self.device, 2 * SIZE)
        self.stream = 0
        self.addresses = itertools.count(1 << 20)

    def wait(self, stream: int, word: int) -> None:
        self.device.enqueue(stream, ("wait", word))

    def write(self, stream: int, word: int) -> None:
        self.device.enqueue(stream, ("write", word))

    def current(self) -> int:
        return self.stream

    @contextmanager
    def on(self, stream: int) -> Iterator[None]:
        before, self.stream = self.stream, stream
        try:
            yield
        finally:
            self.stream = before

    def failed(self, stream: int) -> str:
        return ""

    def segment(self, address: int) -> tuple[int, int]:
        return address, 1

    def address(self, storage: torch.UntypedStorage) -> int:
        """No memory is handed out twice; torch keeps the object, and what is set on it."""
        if not hasattr(storage, "fake_address"):
            storage.fake_address = next(self.addresses)  # type: ignore[attr-defined]
        return storage.fake_address  # type: ignore[attr-defined, no-any-return]

    def pinned(self, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
        if func is torch.ops.aten._pin_memory.default:
            made: torch.Tensor = args[0].clone()
        else:
            made = func(*args, **{k: v for k, v in kwargs.items() if k != "pin_memory"})
        return made

    def copy(self, dst: torch.Tensor, src: torch.Tensor, non_blocking: bool) -> None:
        """No bytes."""

    def record_stream(self, tensor: torch.Tensor, stream: Any) -> None: ...

    def scalar(self, tensor: torch.Tensor) -> Any:
        return 0


def _classes(driver: FakeDriver) -> dict[str, Any]:
    """Stand-ins for ``torch.cuda``'s classes, which a build without CUDA does not have."""
    device = driver.device

    class Stream:
        def __new__(cls, device_: Any = None, priority: int = 0, **_: Any) -> Any:
            made = object.__new__(cls)
            made.cuda_stream = next(device.handles)
            return made

        def __init__(self, *_: Any, **__: Any) -> None: ...

        def wait_event(self, event: Any) -> None:
            event.wait(self)

        def wait_stream(self, other: Any) -> None: ...

        def record_event(self, event: Any = None) -> Any: ...

        def query(self) -> bool:
            return driver.words.idle()

        def synchronize(self) -> None:
            driver.words.idle()
            assert not device.queues.get(self.cuda_stream), "a sync behind a closed gate"

    default = object.__new__(Stream)
    default.cuda_stream = 0
    streams: dict[int, Any] = {0: default}

    class Event:
        version, captured = 0, False

        def __new__(cls, enable_timing: bool = False, **_: Any) -> Any:
            return object.__new__(cls)

        def __init__(self, **_: Any) -> None: ...

        def record(self, stream: Any = None) -> None:
            handle = driver.stream if stream is None else stream.cuda_stream
            self.version = next(device.versions)
            self.captured = device.capture is not None and handle in device.captured_streams
            device.enqueue(handle, ("record", self.version))

        def wait(self, stream: Any) -> None:
            if self.version:
                if self.captured:
                    device.captured_streams.add(stream.cuda_stream)
                device.enqueue(stream.cuda_stream, ("after", self.version))

        def query(self) -> bool:
            return self.version in device.recorded

        def synchronize(self) -> None:
            driver.words.idle()
            assert not self.version or self.version in device.recorded, "behind a closed gate"

        def elapsed_time(self, end: Any) -> float:
            return 0.0

    class CUDAGraph:
        def capture_begin(self, *_: Any, **__: Any) -> None:
            self.origin, device.capture = driver.stream, []
            device.captured_streams = {driver.stream}
            torch.empty(1, device="meta").fill_(0)  # as torch does with its generator's seed

        def capture_end(self) -> None:
            self.nodes, device.capture = device.capture or [], None

        def replay(self) -> None:
            torch.empty(1, device="meta").fill_(0)
            device.launch(driver.stream, self.origin, self.nodes)

    class graph:
        def __init__(self, cuda_graph: Any, pool: Any = None, stream: Any = None) -> None:
            self.cuda_graph, self.pool, self.capture_error_mode = cuda_graph, (), "global"
            self.stream_ctx = on(stream or torch.cuda.Stream())

        def __enter__(self) -> None: ...
        def __exit__(self, *_: Any) -> None: ...

    @contextmanager
    def on(stream: Any) -> Iterator[None]:
        streams[stream.cuda_stream] = stream
        with driver.on(stream.cuda_stream):
            yield

    def synchronize(device_: Any = None) -> None:
        assert driver.words.idle(), "a sync behind a closed gate"

    return {
        "Stream": Stream, "Event": Event, "CUDAGraph": CUDAGraph, "graph": graph, "stream": on,
        "current_stream": lambda device=None: streams[driver.stream],
        "default_stream": lambda device=None: default, "synchronize": synchronize,
        "_sleep": lambda cycles: None,
    }  # fmt: skip


@contextmanager
def recording(
    schedule: Schedule = SERIAL, faults: frozenset[Fault] = frozenset(), patience: float = 20.0,
    step_limit: int | None = None,
) -> Iterator[Recording]:  # fmt: skip
    """A block in which ``torch.cuda`` is the fake device, recorded."""
    driver = FakeDriver()
    patches = Patches()
    with ExitStack() as stack:
        stack.callback(patches.undo)
        for name, value in _classes(driver).items():
            patches.set(torch.cuda, name, value)
        for name in ("_cuda_synchronize", "_cuda_emptyCache"):
            patches.set(torch._C, name, lambda: None)
        session = Session(driver, schedule, faults, step_limit)
        yield stack.enter_context(Recording(session, patience))


def run(
    program: Any, schedule: Schedule = SERIAL, faults: frozenset[Fault] = frozenset()
) -> Record:
    """The record of one run; what the program returns is read as a proof reads it."""
    with recording(schedule, faults) as recorder:
        value = program()
        if isinstance(value, torch.Tensor):
            host = value.cpu()
            with contextlib.suppress(NotImplementedError):
                torch.empty(host.shape).copy_(host)
            del value, host
        return recorder.finish()
