"""CUDA graphs: capture, replay, private pools.

While a stream is captured nothing runs: what is issued becomes a node. A stream that waits on an
event of the capture joins it; at the end all of them must have joined the origin again. Replay
issues every node anew on the current stream; a forked branch runs on a queue of its own, so
branches are unordered except by the captured events. A launch comes after earlier work of its
stream and after earlier launches of the same graph (cudaGraphLaunch).
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Any

import torch

from ..trace import Kind
from .gpu import GPU, StreamState, capture_error, gpu
from .memory import Heap
from .random import Counter, Tape
from .streams import CudaStream, Stream, StreamContext
from .work import Work

_pool_ids = itertools.count(1)
_graph_ids = itertools.count(1)


class Capture:
    """A capture under way: its nodes in issue order, its streams, and who has joined whom."""

    def __init__(
        self, g: GPU, origin: StreamState, heap: Heap, generators: Sequence[Counter]
    ) -> None:
        self.gpu = g
        self.origin = origin
        self.heap = heap
        self.nodes: list[Work] = []
        self.streams: list[StreamState] = [origin]
        self.invalid = False
        self.unjoined = False  # `Heap.free`
        self.tapes = [Tape(counter) for counter in (g.random.default, *generators)]
        self._counts: dict[int, int] = {origin.agent: 0}
        self._clocks: dict[int, dict[int, int]] = {origin.agent: {}}
        self._published: dict[Any, dict[int, int]] = {}
        origin.capture = self
        g.captures.append(self)

    def add(self, stream: StreamState, work: Work) -> None:
        agent = stream.agent
        self._counts[agent] += 1
        clock = self._clocks[agent]
        clock[agent] = self._counts[agent]
        if work.kind is Kind.PUBLISH:
            self._published[work.key] = dict(clock)
        elif work.kind is Kind.ACQUIRE:
            for other, count in self._published.get(work.key, {}).items():
                clock[other] = max(clock.get(other, 0), count)
        self.nodes.append(work)

    def tape(self, counter: Counter) -> Tape:
        """Captured random numbers of a generator; others than the default one are registered."""
        for tape in self.tapes:
            if tape.counter is counter:
                return tape
        raise RuntimeError(
            "Attempt to increase offset for a CUDA generator not in capture mode."
        )

    def join(self, stream: StreamState) -> None:
        """A stream that waits on an event of the capture becomes part of it."""
        stream.capture = self
        self.streams.append(stream)
        self._counts[stream.agent] = 0
        self._clocks[stream.agent] = {}

    def isolation(self) -> None:
        """Waiting on work outside of the capture."""
        self.invalid = True
        raise torch.AcceleratorError(
            "CUDA error: dependency created on uncaptured work in another stream"
        )

    def refuse_copy(self) -> None:
        """torch refuses copies that would have to wait or read pageable memory."""
        self.invalid = True
        raise RuntimeError(
            "Cannot copy between CPU and CUDA tensors during CUDA graph capture unless the CPU "
            "tensor is pinned. Please use tensor.pin_memory() or allocate the tensor with "
            "pin_memory=True."
        )

    def end(self) -> None:
        for stream in self.streams:
            stream.capture = None
        self.gpu.captures.remove(self)
        if self.invalid:
            raise torch.AcceleratorError(
                "CUDA error: operation failed due to a previous error during capture"
            )
        done = self._clocks[self.origin.agent]
        others = [(a, count) for a, count in self._counts.items() if a != self.origin.agent]
        if self.unjoined or any(done.get(agent, 0) < count for agent, count in others):
            raise torch.AcceleratorError("CUDA error: capturing stream has unjoined work")


class CUDAGraph:
    """A captured sequence of device work."""

    def __init__(self, keep_graph: bool = False) -> None:
        self._id = next(_graph_ids)
        self._capture: Capture | None = None
        self._nodes: list[Work] | None = None
        self._pool: tuple[int, int] | None = None
        self._branches: dict[int, int] = {}
        self._origin = -1
        self._launches = 0
        self._generators: list[Counter] = []
        self._tapes: list[Tape] = []

    def register_generator_state(self, generator: torch.Generator) -> None:
        """Before the capture: it may use this generator."""
        self._generators.append(generator.counter)  # type: ignore[attr-defined]

    def capture_begin(
        self, pool: Any = None, capture_error_mode: str = "global", **_: Any
    ) -> None:
        g = gpu()
        stream = g.current()
        if stream is g.default:
            raise RuntimeError(
                "CUDA graphs must be captured on a non-default stream. (However, after capture, "
                "it's ok to replay them on the default stream.)"
            )
        if stream.capture is not None or self._nodes is not None:
            capture_error(g, "capture_begin")
        self._pool = pool_id(pool) if pool is not None else graph_pool_handle()
        self._capture = Capture(g, stream, g.memory.pool(self._pool), self._generators)

    def capture_end(self) -> None:
        capture = self._capture
        if capture is None:
            raise RuntimeError("capture_end called before capture_begin")
        if gpu().current() is not capture.origin:
            raise RuntimeError("Capture must end on the same stream it began on.")
        self._capture = None
        capture.end()
        self._nodes, self._origin = capture.nodes, capture.origin.agent
        self._tapes = [tape for tape in capture.tapes if tape.used]

    def instantiate(self) -> None:
        """With ``keep_graph`` torch instantiates at the first replay; nothing to do here."""

    def replay(self) -> None:
        g = gpu()
        if self._nodes is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        stream = g.current()
        if stream.capture is not None:
            capture_error(g, "graph replay")
        self._launches += 1
        launch = ("launch", self._id, self._launches)
        machine = g.machine
        me, site = machine.host(), machine.sites.here()
        end = ("graph", self._id)
        previous = self._last
        machine.enqueue(
            Work(stream.agent, me, Kind.ACQUIRE, "replay", site, key=end, after=previous)
        )
        start = Work(
            stream.agent, me, Kind.PUBLISH, "replay", site, self._wind(), key=launch
        )
        machine.enqueue(start)
        started = {self._origin}
        copies: dict[int, Work] = {}
        for node in self._nodes:
            agent = self._agent(g, node.agent, stream)
            if node.agent not in started:
                started.add(node.agent)
                machine.enqueue(
                    Work(agent, me, Kind.ACQUIRE, "branch", site, key=launch, after=start)
                )
            after = copies.get(id(node.after)) if node.after is not None else None
            key = None if node.key is None else (*launch, node.key)
            work = Work(
                agent, me, node.kind, node.op, node.site, node.run, node.accesses, key, after,
                node.edges,
            )  # fmt: skip
            copies[id(node)] = work
            machine.enqueue(work)
        self._last = machine.publish(stream.agent, "replayed", end)

    _last: Work | None = None

    def _wind(self) -> Callable[[Work], object] | None:
        """Takes the random numbers of this launch now; its nodes see them when it executes."""
        if not self._tapes:
            return None
        begins = [(tape, tape.counter.seed, tape.counter.offset) for tape in self._tapes]
        for tape in self._tapes:
            tape.counter.offset += tape.used

        def run(work: Work) -> None:
            for tape, seed, offset in begins:
                tape.seed, tape.offset = seed, offset

        return run

    def _agent(self, g: GPU, captured: int, stream: StreamState) -> int:
        if captured == self._origin:
            return stream.agent
        agent = self._branches.get(captured)
        if agent is None:
            name = g.machine.trace.agents[captured].name
            agent = self._branches[captured] = g.machine.new_stream(
                f"graph {self._id} branch {name}"
            )
        return agent

    def reset(self) -> None:
        """Drops the graph; its pool's blocks can be used again."""
        self._nodes = None

    def pool(self) -> tuple[int, int]:
        if self._pool is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool

    def enable_debug_mode(self) -> None:
        """Nothing to collect."""

    def debug_dump(self, debug_path: str) -> None:
        gpu().refuse("CUDAGraph.debug_dump")
        raise NotImplementedError("the virtual GPU cannot dump graphs")


class graph:
    """``with torch.cuda.graph(g):`` captures the body on a side stream."""

    default_capture_stream: Stream | None = None

    def __init__(
        self, cuda_graph: CUDAGraph, pool: Any = None, stream: Stream | None = None,
        capture_error_mode: str = "global", **_: Any,
    ) -> None:  # fmt: skip
        cls = type(self)
        if stream is None and cls.default_capture_stream is None:
            cls.default_capture_stream = CudaStream()
        self.cuda_graph = cuda_graph
        self.pool: tuple[Any, ...] = () if pool is None else (pool,)
        self.capture_stream = stream if stream is not None else cls.default_capture_stream
        self.stream_ctx = StreamContext(self.capture_stream)
        self.capture_error_mode = capture_error_mode

    def __enter__(self) -> None:
        g = gpu()
        g.forbid_in_capture("torch.cuda.graph")
        g.machine.drain("torch.cuda.graph", g.agents())  # as torch: free memory before capture
        gc.collect()
        g.memory.empty_cache()
        self.stream_ctx.__enter__()
        pool = self.pool[0] if self.pool else None
        self.cuda_graph.capture_begin(pool, capture_error_mode=self.capture_error_mode)

    def __exit__(
        self, type: type[BaseException] | None, value: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:  # fmt: skip
        try:
            self.cuda_graph.capture_end()
        finally:
            self.stream_ctx.__exit__(type, value, traceback)


def graph_pool_handle() -> tuple[int, int]:
    """A fresh id of a private pool."""
    return (0, next(_pool_ids))


def pool_id(pool: Any) -> tuple[int, int]:
    first, second = pool.id if isinstance(pool, MemPool) else pool
    return first, second


class MemPool:
    """A private pool for allocations inside ``use_mem_pool``."""

    def __init__(self, *_: Any, **__: Any) -> None:
        self.id = graph_pool_handle()

    @property
    def allocator(self) -> None:
        return None

    def use_count(self) -> int:
        return 1

    def snapshot(self) -> list[Any]:
        return []


class use_mem_pool:
    """``with torch.cuda.use_mem_pool(pool):`` this thread allocates from ``pool``."""

    def __init__(self, pool: MemPool, device: Any = None) -> None:
        self._id = pool_id(pool)

    def __enter__(self) -> None:
        g = gpu()
        g.local.pools.append(g.memory.pool(self._id))

    def __exit__(self, *_: object) -> None:
        gpu().local.pools.pop()
