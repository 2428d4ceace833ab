"""A capture under way: what is issued becomes a node, and forks have to be joined again."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from ..trace import Kind
from .gpu import GPU, StreamState
from .memory import Heap
from .random import Counter, Tape
from .work import Work


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
        if not (work.edges and self.gpu.machine.cut(work.edges)):
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
