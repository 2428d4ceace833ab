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
import warnings
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any

import torch

from ..trace import Kind
from .captures import Capture
from .gpu import GPU, StreamState, capture_error, gpu
from .graph_dot import dot
from .random import Counter, Tape
from .streams import CudaStream, Stream, StreamContext
from .work import Work

_pool_ids = itertools.count(1)
_graph_ids = itertools.count(1)


class CUDAGraph:
    """A captured sequence of device work."""

    _debug = False  # torch has one switch for all graphs

    def __init__(self, keep_graph: bool = False) -> None:
        self._id = next(_graph_ids)
        self._keep = keep_graph  # the cudaGraph_t, beside what was instantiated from it
        self._instantiated = False
        self._capture: Capture | None = None
        self._nodes: list[Work] | None = None
        self._pool: tuple[int, int] | None = None
        self._branches: dict[int, int] = {}
        self._origin = -1
        self._launches = 0
        self._last: Work | None = None  # end of the latest launch
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
        if self._nodes is not None:
            raise RuntimeError(
                "This CUDAGraph instance already owns a captured graph. To capture a new graph, "
                "create a new instance."
            )
        if stream.capture is not None:
            capture_error(g, "capture_begin")
        self._pool = pool_id(pool) if pool is not None else graph_pool_handle()
        self._capture = Capture(g, stream, g.memory.pool(self._pool), self._generators)

    def capture_end(self) -> None:
        capture = self._capture
        if capture is None:
            raise torch.AcceleratorError(
                "CUDA error: the operation cannot be performed in the present state"
            )
        if gpu().current() is not capture.origin:
            raise RuntimeError("Capture must end on the same stream it began on.")
        self._capture = None
        mutations = capture.gpu.mutations
        if mutations is not None:
            mutations.end(capture)
        capture.end()
        self._nodes, self._origin = capture.nodes, capture.origin.agent
        self._tapes = [tape for tape in capture.tapes if tape.used]
        self._instantiated = not self._keep

    def instantiate(self) -> None:
        """With ``keep_graph`` this, or the first replay, makes what is launched."""
        if self._nodes is None:
            raise RuntimeError("capture_end() must have been called before calling instantiate")
        if self._instantiated and not self._keep:
            raise RuntimeError(
                "instantiate() is intended to be called by the user only when keep_graph=true"
            )
        self._instantiated = True

    def replay(self) -> None:
        g = gpu()
        if self._nodes is None:
            raise RuntimeError("Called CUDAGraph::replay without a preceding successful capture.")
        stream = g.current()
        if stream.capture is not None:
            capture_error(g, "graph replay")
        self._instantiated = True
        machine = g.machine
        machine.turn("replay")  # before the launch, which is one call, looks at the latest one
        me, site = machine.host(), machine.sites.here()
        start = Work(stream.agent, me, Kind.PUBLISH, "replay", site, self._wind())
        if g.mutations is not None:
            g.mutations.before(stream, start)
        self._launch(g, stream, start)
        if g.mutations is not None:
            g.mutations.after(stream)

    def _launch(self, g: GPU, stream: StreamState, start: Work) -> None:
        """Issues a copy of every node; the launch comes after the graph's launch before it."""
        assert self._nodes is not None
        self._launches += 1
        launch = start.key = ("launch", self._id, self._launches)
        g.launches += 1
        number, me, site = g.launches, start.issuer, start.site

        def enqueue(work: Work) -> Work:
            work.launch = number
            return g.machine.enqueue(work)

        end = ("graph", self._id)
        enqueue(Work(stream.agent, me, Kind.ACQUIRE, "replay", site, key=end, after=self._last))
        enqueue(start)
        started = {self._origin}
        copies: dict[int, Work] = {}
        for node in self._nodes:
            agent = self._agent(g, node.agent, stream)
            if node.agent not in started:
                started.add(node.agent)
                enqueue(Work(agent, me, Kind.ACQUIRE, "branch", site, key=launch, after=start))
            after = copies.get(id(node.after)) if node.after is not None else None
            key = None if node.key is None else (*launch, node.key)
            work = Work(
                agent, me, node.kind, node.op, node.site, node.run, node.accesses, key, after,
                node.edges,
            )  # fmt: skip
            copies[id(node)] = work
            enqueue(work)
        self._last = enqueue(Work(stream.agent, me, Kind.PUBLISH, "replayed", site, key=end))

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
        """Drops the graph; its pool's blocks can be used again, and it can capture another."""
        self._nodes = self._pool = self._last = None
        self._instantiated = False
        self._branches = {}
        self._id = next(_graph_ids)  # launches of another graph come after none of this one's

    def pool(self) -> tuple[int, int]:
        if self._pool is None or self._nodes is None:
            raise RuntimeError("Called CUDAGraph::pool() without a preceding successful capture.")
        return self._pool

    def raw_cuda_graph(self) -> int:
        if not self._keep:
            raise RuntimeError(
                "You cannot access the raw cudaGraph_t instance unless CUDAGraph was initialized "
                "with keep_graph=true"
            )
        if self._nodes is None:
            raise RuntimeError(
                "You cannot access the raw cudaGraph_t instance until capture_end() has been called"
            )
        return self._no_handle("raw_cuda_graph")

    def raw_cuda_graph_exec(self) -> int:
        if not self._instantiated:
            raise RuntimeError(
                "You cannot access the raw cudaGraphExec_t instance until instantiate() has been "
                "called"
            )
        return self._no_handle("raw_cuda_graph_exec")

    def get_graph_data(self) -> dict[str, Any]:
        self._no_handle("get_graph_data")
        return {}

    def _no_handle(self, name: str) -> int:
        gpu().refuse(f"CUDAGraph.{name}: whoever has the handle could change the graph unseen")
        raise NotImplementedError(f"CUDAGraph.{name}: the virtual GPU has no graphs of CUDA's")

    def enable_debug_mode(self) -> None:
        """`debug_dump` of any graph writes, from now on."""
        CUDAGraph._debug = True

    def debug_dump(self, debug_path: str) -> None:
        """Writes the nodes and their dependencies, as Graphviz reads them."""
        if not (CUDAGraph._debug or self._keep):
            warnings.warn(
                "CUDA Graphs debug not enabled, set with [graph].enable_debug_mode()", stacklevel=2
            )
            return
        warnings.warn("DEBUG: calling debug_dump()", stacklevel=2)
        if self._nodes is not None:
            g = gpu()
            names = [agent.name for agent in g.machine.trace.agents]
            Path(debug_path).write_text(dot(self._nodes, names, g.machine.sites.sites))


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
