"""Backward on streams: what CUDA's autograd engine does with them (engine.cpp, input_buffer.cpp).

* A node runs on the stream that was current when its forward ran; a gradient accumulator
  (AccumulateGrad) on the one that was current when it was made, at the leaf's first use.
* A consumer on another stream than a producer waits for an event recorded after the producer.
* Gradients for one input are summed on the consumer's stream, which waits for both.
* The caller's stream produces the roots, and at the end waits for the streams of the leaves.

To C++ the device has one stream, so the engine does none of that by itself. Here a pass over a
graph of several streams follows the engine: it watches the engine's current node, at hooks and
whenever an operator or a stream is asked for, and issues what CUDA's engine would. These waits
belong to no sync call of the program, so no fault can take them out.

Which stream a node has is found by its sequence number: a thread's nodes are numbered as they are
made, and a `StreamLog` keeps where the current stream changed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from . import guard
from .stream_log import next_number
from .streams import bind, record
from .tensor import DeviceTensor

if TYPE_CHECKING:
    from .gpu import GPU, EventState, StreamState

Node = Any  # torch.autograd.graph.Node; C++ nodes are no subclass of it
_LEAF = 2**64 - 1  # sequence number of every AccumulateGrad
_current_node: Callable[[], Node] = torch._C._current_autograd_node
_MADE_ON = "redgreen: made on"  # in the metadata of accumulators that outlive a pass


class _Buffer:
    """A gradient that waits for its consumer: where it will be ready, and when."""

    __slots__ = ("event", "stream")

    def __init__(self, stream: StreamState, event: EventState | None) -> None:
        self.stream, self.event = stream, event


class Backward:
    """One call of the engine over a graph that uses more than one stream."""

    def __init__(self, gpu: GPU, streams: dict[Node, StreamState | None], queue: Any) -> None:
        self._gpu = gpu
        self._streams = streams  # None: a node of the host
        self._caller = gpu.current()
        self._queue_callback = queue
        self._node: Node = None
        self._summing = True  # the node is through; what comes are sums of its gradients
        self._begun = self._ended = False
        self._buffers: dict[Node, dict[int, _Buffer]] = {}
        self._sums: list[tuple[StreamState, StreamState, _Buffer]] = []
        self._leaves: dict[StreamState, None] = {}  # in order

    # -- following the engine --------------------------------------------------------------------

    def hooks(self) -> list[Any]:
        """Hooks before and after every node: also those that enqueue nothing take part."""
        handles: list[Any] = []
        for node in self._streams:
            handles.append(node.register_prehook(partial(self._before, node)))
            handles.append(node.register_hook(partial(self._after, node)))
        return handles

    def follow(self) -> None:
        """Is the engine at another node? Hooks of tensors come before those of nodes."""
        node = _current_node()
        if node is not self._node and not self._ended and node in self._streams:
            self._enter(node)

    def operator(self) -> None:
        """An operator is about to be enqueued: the node's own, or a sum of its gradients."""
        self.follow()
        if self._sums and self._summing:
            self._sum(*self._sums.pop(0))

    def _before(self, node: Node, *_: Any) -> None:
        if node is not self._node:
            self._enter(node)

    def _enter(self, node: Node) -> None:
        self._flush()
        if not self._begun:
            self._begun = True
            self._queue_callback(self.finish)  # in front of the program's own callbacks
        self._node, self._summing = node, False
        stream = self._streams[node]
        self._gpu.switch(self._caller if stream is None else stream)
        self._consume(node)

    def _consume(self, node: Node) -> None:
        """The node's stream waits until its gradients are ready."""
        stream = self._streams[node]
        for buffer in self._buffers.pop(node, {}).values():
            if stream is not None and buffer.event is not None and buffer.stream is not stream:
                bind(self._gpu, stream, buffer.event, ())

    def _after(self, node: Node, grad_inputs: Sequence[Any], *_: Any) -> None:
        """The node is through, but for the sums of what it produced."""
        self._summing = True
        stream = self._streams[node] or self._caller
        edges = node.next_functions
        if not edges:
            self._leaves[stream] = None
        for gradient, (consumer, position) in zip(grad_inputs, edges, strict=False):
            self.hand_over(stream, consumer, position, gradient)

    # -- what the engine does --------------------------------------------------------------------

    def hand_over(self, source: StreamState, consumer: Node, position: int, gradient: Any) -> None:
        """InputBuffer::add: a gradient of work on ``source`` goes to an input of ``consumer``."""
        if not isinstance(gradient, DeviceTensor) or consumer not in self._streams:
            return
        target = self._streams[consumer] or self._caller
        if target is not source:  # the allocator may not reuse it before target is through
            gradient.block.recorded.setdefault(target.agent, set())
        buffers = self._buffers.setdefault(consumer, {})
        buffer = buffers.get(position)
        if buffer is None:
            event = self._record(source) if source is not target else None
            buffers[position] = _Buffer(source, event)
        else:
            self._sums.append((target, source, buffer))

    def _sum(self, target: StreamState, source: StreamState, buffer: _Buffer) -> None:
        """The sum of two gradients, on the consumer's stream, comes after both producers."""
        self._gpu.switch(target)
        if source is not target:
            bind(self._gpu, target, self._record(source), ())
        if buffer.stream is not target and buffer.event is not None:
            bind(self._gpu, target, buffer.event, ())
        buffer.stream, buffer.event = target, None

    def _flush(self) -> None:
        """Sums that needed no operator (a gradient of another layout may be taken as it is)."""
        while self._sums:
            self._sum(*self._sums.pop(0))

    def _record(self, stream: StreamState) -> EventState:
        event = self._gpu.new_event()
        record(self._gpu, event, stream, ())
        return event

    def finish(self) -> None:
        """The caller's stream waits for those of the leaves, before final callbacks run."""
        if self._ended:
            return
        self._flush()
        self._ended = True
        for node in list(self._buffers):  # asked for with inputs=: captured, never run
            self._consume(node)
            self._leaves[self._streams[node] or self._caller] = None
        self._gpu.switch(self._caller)
        for stream in self._leaves:
            if stream is not self._caller:
                bind(self._gpu, self._caller, self._record(stream), ())


# -- the graph -------------------------------------------------------------------------------------


def _edges(tensors: Iterable[Any]) -> list[tuple[Node, int]]:
    """The nodes that tensors (or gradient edges) stand for."""
    found = []
    for tensor in tensors:
        if isinstance(tensor, torch.Tensor):
            if not tensor.requires_grad:
                continue  # the engine has the right message
            tensor = torch.autograd.graph.get_gradient_edge(tensor)
        found.append((tensor.node, tensor.output_nr))
    return found


def _graph(gpu: GPU, roots: Iterable[Node]) -> dict[Node, StreamState | None]:
    """Every node that can be reached, with its stream."""
    streams: dict[Node, StreamState | None] = {}
    accumulators: dict[Node, int] = {}  # -> number of the first node that used the leaf
    stack = list(roots)
    while stack:
        node = stack.pop()
        if node in streams:
            continue
        number = node._sequence_nr()
        streams[node] = _stream_at(gpu, number) if _on_device(node) else None
        for consumer, _ in node.next_functions:
            if consumer is not None:
                stack.append(consumer)
                if consumer._sequence_nr() == _LEAF:
                    first = accumulators.get(consumer, _LEAF)
                    accumulators[consumer] = min(first, number)
    for node, number in accumulators.items():
        if streams[node] is not None:
            streams[node] = _accumulator_stream(gpu, node, number)
    return streams


def _on_device(node: Node) -> bool:
    return any(meta.device.type not in ("cpu", "meta") for meta in node._input_metadata)


def _stream_at(gpu: GPU, number: int) -> StreamState:
    """The stream of a node by its number.

    Numbers are counted per thread. The caller's own thread comes first, as far as it has counted.
    """
    mine = gpu.local.log
    if number < next_number() and mine is not None:
        return mine.at(number)
    others = [log for log in gpu.logs if log is not mine]
    return others[0].at(number) if others else gpu.default


def _accumulator_stream(gpu: GPU, node: Node, number: int) -> StreamState:
    """Of the leaf's first use. Kept with the node, which may outlive the graph (DDP holds it)."""
    known: StreamState | None = node.metadata.get(_MADE_ON)
    if known is not None and gpu.streams.get(known.id) is known:
        return known
    stream = node.metadata[_MADE_ON] = _stream_at(gpu, number)
    return stream


# -- the engine ------------------------------------------------------------------------------------


class Engine:
    """Stands in for ``torch.autograd.Variable._execution_engine``."""

    def __init__(self, gpu: GPU, original: Any) -> None:
        self._gpu = gpu
        self._original = original
        self.queue_callback = original.queue_callback
        self.is_checkpoint_valid = original.is_checkpoint_valid

    def run_backward(self, tensors: Any, gradients: Any, *args: Any, **kwargs: Any) -> Any:
        """Runs the engine, and follows it where more than one stream takes part."""
        gpu, local = self._gpu, self._gpu.local
        outer, stream = local.backward, local.stream
        handles: list[Any] = []
        pending = guard.pending()
        threads = torch._C._is_multithreading_enabled()  # per thread, and on in a new one
        try:
            torch._C._set_multithreading_enabled(False)
            local.backward = None
            inner = self._follower(tensors, gradients, args, kwargs)
            if inner is not None:
                handles = inner.hooks()
                local.backward = inner
            result = self._original.run_backward(tensors, gradients, *args, **kwargs)
            if inner is not None:
                inner.finish()
            return result
        except SystemError as error:
            raise guard.restored(pending, error) from None
        finally:
            for handle in handles:
                handle.remove()
            local.backward = outer
            torch._C._set_multithreading_enabled(threads)
            gpu.switch(stream)

    def _follower(self, tensors: Any, gradients: Any, args: Any, kwargs: Any) -> Backward | None:
        gpu = self._gpu
        if gpu.break_rule == 13 or all(log.only(gpu.current()) for log in gpu.logs):
            return None
        wanted = args[2] if len(args) > 2 else kwargs.get("inputs", ())
        roots = _edges(tensors)
        streams = _graph(gpu, [node for node, _ in [*roots, *_edges(wanted or ())]])
        if set(streams.values()) <= {None, gpu.current()}:
            return None
        follower = Backward(gpu, streams, self.queue_callback)
        for (node, position), gradient in zip(roots, gradients, strict=False):
            follower.hand_over(gpu.current(), node, position, gradient)
        return follower
