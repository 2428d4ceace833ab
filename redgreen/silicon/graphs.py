"""CUDA graphs on the real device: what a capture records, and a launch expanded into its nodes.

Gates are captured with the nodes (a stream memory operation becomes a node of its own), so a launch
can be held between any two of them. The words belong to the graph: before each launch, which has a
gate of its own, they are closed again; the launch before is over by then (cudaGraphLaunch: launches
of one executable graph do not overlap).
"""

from __future__ import annotations

import gc
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any

import torch

from ..trace import Kind
from ..virtual.work import Work
from .gates import Gate
from .session import Session, StreamState

Node = tuple[Work, Gate | None]


class Capture:
    """A capture under way: its nodes in issue order and its streams."""

    def __init__(self, s: Session, origin: StreamState, number: int) -> None:
        self.origin, self.number = origin, number
        self.nodes: list[Node] = []
        self.streams = [origin]
        self._session = s
        origin.capture = self
        s.captures.append(self)
        s.gates.capturing = True

    def add(self, stream: StreamState, work: Work, gate: Gate | None = None) -> None:
        self.nodes.append((work, gate))

    def join(self, stream: StreamState) -> None:
        """A stream that waits on an event of the capture becomes part of it."""
        stream.capture = self
        self.streams.append(stream)

    def end(self) -> None:
        for stream in self.streams:
            stream.capture = None
        self._session.captures.remove(self)
        self._session.gates.capturing = bool(self._session.captures)


@dataclass(slots=True)
class Captured:
    """What is known of a graph."""

    session: Session
    id: int
    nodes: list[Node]
    origin: int
    launches: int = 0
    last: Work | None = None
    branches: dict[int, int] = field(default_factory=dict)

    def launch(self, replay: Any) -> None:
        """Enqueues the whole graph behind a gate, and its nodes as steps."""
        s, machine = self.session, self.session.machine
        with s.atomic():
            stream = s.current()
            gate = s.gates.close(stream.handle)
            try:
                s.calling("graph replay", replay)
            except BaseException:
                s.gates.open(gate)
                raise
            s.gates.mark(gate)
            self.launches += 1
            s.launches += 1
            me, site = machine.host(), machine.sites.here()
            key, end = ("launch", self.id, self.launches), ("graph", self.id)
            self._enqueue(
                Work(stream.agent, me, Kind.ACQUIRE, "replay", site, key=end, after=self.last))
            start = Work(stream.agent, me, Kind.PUBLISH, "replay", site, key=key,
                         run=lambda _: self._begin(gate))  # fmt: skip
            self._enqueue(start)
            self._enqueue_nodes(stream, start, key)
            # When its last node is done the words of the launch's own gate can be used again.
            self.last = self._enqueue(
                Work(stream.agent, me, Kind.PUBLISH, "replayed", site, key=end,
                     run=lambda _: s.gates.pass_through(gate)))  # fmt: skip

    def _enqueue(self, work: Work, gate: Gate | None = None) -> Work:
        s = self.session
        work.launch = s.launches
        if gate is None:
            return s.machine.enqueue(work)
        s.enqueue(work, gate)
        return work

    def _begin(self, gate: Gate) -> None:
        self.session.gates.reset([g for _, g in self.nodes if g is not None])
        self.session.gates.open(gate)

    def _enqueue_nodes(self, stream: StreamState, start: Work, key: tuple[Any, ...]) -> None:
        started = {self.origin}
        copies: dict[int, Work] = {}
        for node, gate in self.nodes:
            agent = self._agent(node.agent, stream)
            if node.agent not in started:
                started.add(node.agent)
                self._enqueue(Work(agent, start.issuer, Kind.ACQUIRE, "branch", start.site,
                                   key=key, after=start))  # fmt: skip
            after = copies.get(id(node.after)) if node.after is not None else None
            named = None if node.key is None else (*key, node.key)
            work = Work(agent, start.issuer, node.kind, node.op, node.site, None, node.accesses,
                        named, after, node.edges)  # fmt: skip
            copies[id(node)] = work
            self._enqueue(work, gate)

    def _agent(self, captured: int, stream: StreamState) -> int:
        if captured == self.origin:
            return stream.agent
        agent = self.branches.get(captured)
        if agent is None:
            machine = self.session.machine
            name = machine.trace.agents[captured].name
            agent = machine.new_stream(f"graph {self.id} branch {name}")
            self.branches[captured] = agent
        return agent


def _unseen() -> Any:
    """torch writes the seed and the offset of its generator, in memory of its own, when a capture
    begins and before each replay that needs random numbers (CUDAGeneratorImpl.cpp): these kernels
    are no steps of the program, and behind the gate of a launch they could have none of their own.
    """
    return torch._C._DisableTorchDispatch()


class GraphMethods:
    """Stand-ins for methods of ``torch.cuda.CUDAGraph`` and ``torch.cuda.graph``."""

    def __init__(self, session: Session) -> None:
        self._session = session
        cls: Any = torch.cuda.CUDAGraph
        self._begin, self._end, self._replay = cls.capture_begin, cls.capture_end, cls.replay

    def patches(self) -> list[tuple[Any, str, Any]]:
        graph, context = torch.cuda.CUDAGraph, torch.cuda.graph
        return [
            (graph, "capture_begin", lambda g, *a, **k: self.capture_begin(g, *a, **k)),
            (graph, "capture_end", lambda g: self.capture_end(g)),
            (graph, "replay", lambda g: self.replay(g)),
            (context, "__enter__", lambda c: self.enter(c)),
            (context, "__exit__", lambda c, *error: self.leave(c, *error)),
        ]

    def capture_begin(self, graph: Any, *args: Any, **kwargs: Any) -> None:
        s = self._session
        with _unseen():
            self._begin(graph, *args, **kwargs)
        s.graphs += 1
        graph._redgreen = Capture(s, s.current(), s.graphs)

    def capture_end(self, graph: Any) -> None:
        capture = getattr(graph, "_redgreen", None)
        try:
            self._end(graph)
        finally:
            if isinstance(capture, Capture):
                capture.end()
        if isinstance(capture, Capture):
            graph._redgreen = Captured(
                self._session, capture.number, capture.nodes, capture.origin.agent)

    def replay(self, graph: Any) -> None:
        captured = getattr(graph, "_redgreen", None)
        if not isinstance(captured, Captured) or captured.session is not self._session:
            if captured is not None:
                self._session.refuse("a graph of another run was replayed")
            self._replay(graph)
            return
        if self._session.current().capture is not None:
            self._session.refuse("a graph was replayed inside a capture")
        captured.launch(lambda: self._replay_unseen(graph))

    def _replay_unseen(self, graph: Any) -> None:
        with _unseen():
            self._replay(graph)

    def enter(self, context: Any) -> None:
        """As torch: all streams are awaited and unused memory is given back before a capture."""
        s = self._session
        s.machine.drain("torch.cuda.graph", s.agents())
        s.calling("torch.cuda.synchronize", torch._C._cuda_synchronize)
        gc.collect()
        s.calling("torch.cuda.empty_cache", torch._C._cuda_emptyCache)
        s.blocks.forget_segments()
        context.stream_ctx.__enter__()
        context.cuda_graph.capture_begin(
            *context.pool, capture_error_mode=context.capture_error_mode)

    def leave(
        self, context: Any, kind: type[BaseException] | None = None,
        value: BaseException | None = None, traceback: TracebackType | None = None,
    ) -> None:  # fmt: skip
        try:
            context.cuda_graph.capture_end()
        finally:
            context.stream_ctx.__exit__(kind, value, traceback)
