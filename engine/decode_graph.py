"""Decode steps as CUDA graphs: one slot per (rows, query length), or two in a ring."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from .config import EngineConfig
from .counters import Counters
from .errors import DeviceStateError
from .faults import Faults
from .inputs import Group, StepInputs, StepTensors
from .kv_cache import DeviceCache
from .models import Qwen35
from .pools import GraphPool, PersistentDecodeInputPool

Key = tuple[int, int]  # padded rows, query length


@dataclass(frozen=True, slots=True)
class Logits:
    """Float32 [R, vocab]; ``owning`` unless it is a view of a graph's output."""

    values: Tensor
    owning: bool


class GraphSlot:
    """Persistent inputs, and the graph that reads them once it is captured.

    Option A (``staged``): pinned staging, copied before the replay, and an event after the copies.
    Otherwise the pinned host vectors' copies are part of the graph.
    """

    def __init__(
        self, key: Key, columns: int, hidden: Tensor, device: StepTensors, *, staged: bool
    ) -> None:
        rows, length = key
        self.columns, self.hidden, self.device = columns, hidden, device
        self.groups = (Group(0, rows, 0, length),)
        self.host = StepTensors.empty(rows * length, rows, columns, device="cpu", pinned=True)
        self.staged_event = torch.cuda.Event(blocking=True) if staged else None
        self.graph: torch.cuda.CUDAGraph | None = None
        self.logits: Tensor | None = None
        self.reserve: Tensor | None = None  # E25: between cold pass and capture
        self.warm = False

    def copy_inputs(self) -> None:
        """E14: the host has written what these copies read. E15: the layers run after them."""
        for target, source in zip(self.device.cells(), self.host.cells(), strict=True):
            target.copy_(source, non_blocking=True)

    def close(self) -> None:
        """E33: the graph and the copies' sources go before what they write. MAIN is idle."""
        if self.graph is not None:
            self.graph.reset()
        del self.graph, self.logits, self.reserve, self.host, self.device, self.hidden


@dataclass(slots=True)
class _Ring:
    """The slots of one key, used in turn; ``columns`` never shrinks."""

    slots: list[GraphSlot | None]
    columns: int = 0
    turn: int = -1


class DecodeGraphs:
    """Cold pass, capture, replay, for uniform steps that fit a bucket."""

    def __init__(
        self, model: Qwen35, cache: DeviceCache, config: EngineConfig, counters: Counters,
        faults: Faults,
    ) -> None:  # fmt: skip
        self._model, self._cache, self._config = model, cache, config
        self._counters, self._faults = counters, faults
        self._inputs, self._graphs = PersistentDecodeInputPool(), GraphPool()
        self._rings: dict[Key, _Ring] = {}

    def takes(self, inputs: StepInputs) -> bool:
        """Whether a step is uniform and no larger than the largest bucket."""
        lengths = {group.length for group in inputs.groups}
        uniform = len(inputs.groups) == 1 and max(lengths) <= self._config.graph_query_len
        return uniform and inputs.rows <= self._config.graph_rows[-1]

    def run(self, inputs: StepInputs, hidden: Tensor) -> Logits:
        """Logits of a step that `takes` accepted; ``hidden`` [T, H] is its embedded ids."""
        length, rows = inputs.groups[0].length, inputs.rows
        bucket = next(size for size in self._config.graph_rows if size >= rows)
        slot = self._next_slot((bucket, length), inputs.columns)
        padded = inputs.padded(bucket, live=self._faults.hit("E35.live-padding"))
        self._refresh(slot, padded)
        # E17: RAW and WAR on the slot's hidden; MAIN runs replay, embedding and replay in order.
        slot.hidden[: inputs.tokens].copy_(hidden)
        if inputs.tokens < slot.hidden.shape[0]:
            slot.hidden[inputs.tokens :].zero_()
        if slot.graph is None and not slot.warm:
            return Logits(self._cold(slot)[:rows], owning=True)
        replayed = self._replay(slot)
        return Logits(replayed[:rows], owning=False)

    # -- slots ------------------------------------------------------------------------------------

    def _next_slot(self, key: Key, columns: int) -> GraphSlot:
        """E13: WAR on inputs and logits; the other slot of the ring is the one in flight.

        E34: the key has rows and query length, so three rows of two are not two rows of three.
        """
        ring = self._rings.setdefault(key, _Ring([None] * self._config.slots_per_key))
        ring.columns = max(ring.columns, self._column_bucket(columns))
        ring.turn = (ring.turn + 1) % len(ring.slots)
        if self._faults.hit("E13.collapse"):
            ring.turn = 0
        slot = ring.slots[ring.turn]
        if slot is not None and slot.columns != ring.columns:
            torch.cuda.current_stream().synchronize()  # E32: UAF; replays may be in flight
            slot.close()
            self._counters.rebuilt_slots += 1
            slot = None
        if slot is None:
            slot = ring.slots[ring.turn] = self._build(key, ring.columns)
            self._counters.second_slots += ring.turn > 0
        return slot

    def _column_bucket(self, columns: int) -> int:
        bucket = 1
        while bucket < columns:
            bucket *= 2
        return min(bucket, self._config.max_columns)

    def _build(self, key: Key, columns: int) -> GraphSlot:
        (rows, length), device = key, self._config.torch_device
        model, staged = self._model.config, self._config.flags.executor
        with self._inputs.active():
            shape = rows * length, model.hidden_size
            hidden = torch.zeros(shape, dtype=model.dtype, device=device)
            tensors = StepTensors.empty(rows * length, rows, columns, device=device, pinned=False)
        self._counters.staging_buffers += len(tensors.cells()) * staged
        self._counters.staged_events += staged
        return GraphSlot(key, columns, hidden, tensors, staged=staged)

    def _refresh(self, slot: GraphSlot, inputs: StepInputs) -> None:
        """Writes the host side of a slot; with Option A also enqueues its copies."""
        if slot.staged_event is None:
            inputs.write(slot.host)  # E06 has drained MAIN: captured copies read these
            return
        if not self._faults.hit("E08.skip-wait"):
            slot.staged_event.synchronize()  # E08: HOST-WAR on the pinned staging
        inputs.write(slot.host)
        slot.copy_inputs()  # E16: WAR on the device inputs; the slot's last replay is earlier
        if not self._faults.hit("E08.skip-record"):
            slot.staged_event.record()  # E08

    # -- cold, capture, replay --------------------------------------------------------------------

    def _forward(self, slot: GraphSlot) -> Tensor:
        return self._model(slot.hidden, slot.device, slot.groups, self._cache)

    def _cold(self, slot: GraphSlot) -> Tensor:
        """An eager pass that leaves in the graphs' pool what the capture will need (E25).

        The capture keeps its logits, so each slot holds a block for its own: the ring's other slot
        has its cold pass in between, and would have been content with this one.
        """
        if slot.staged_event is None:
            slot.copy_inputs()
        with self._graphs.active():
            logits = self._forward(slot)
        slot.warm, slot.reserve = True, logits
        self._counters.cold_steps += 1
        return logits.clone()  # E27: its owner must not hold a block that a capture will bake in

    def _replay(self, slot: GraphSlot) -> Tensor:
        if slot.graph is None:
            self._capture(slot)
        elif slot.staged_event is not None and self._poisoned():
            self._poison(slot)
        if slot.graph is None or slot.logits is None:
            raise DeviceStateError("a decode graph was to be replayed that holds no capture")  # E40
        slot.graph.replay()
        self._counters.replays += 1
        return slot.logits

    def _capture(self, slot: GraphSlot) -> None:
        """E40: an error leaves the slot without a graph and is raised: nobody reads its logits."""
        graph = torch.cuda.CUDAGraph()
        torch.cuda.current_stream().synchronize()  # E24: capture begins on an idle stream
        reserved, slot.reserve = torch.cuda.memory_reserved(), None
        graph.capture_begin(pool=self._graphs.id, capture_error_mode="thread_local")
        try:
            if slot.staged_event is None:
                slot.copy_inputs()
            logits = self._forward(slot)
        finally:
            graph.capture_end()
        self._counters.capture_reserved_bytes += torch.cuda.memory_reserved() - reserved
        slot.graph, slot.logits = graph, logits
        self._counters.captures += 1

    def _poisoned(self) -> bool:
        return self._config.flags.executor_poison or self._faults.hit("E08.poison")

    def _poison(self, slot: GraphSlot) -> None:
        """Each source over its own capacity, after its copy was enqueued, with no sync."""
        for cell in (slot.host.positions, slot.host.slot_mapping, slot.host.seq_lens):
            cell.zero_()

    def close(self) -> None:
        """Drops every graph; MAIN is idle."""
        for ring in self._rings.values():
            for slot in ring.slots:
                if slot is not None:
                    slot.close()
        self._rings.clear()
