"""Runs one scheduled step: rows, inputs, forward pass, sampling, output."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from .checkpoint import Weights
from .config import EngineConfig
from .counters import Counters
from .decode_graph import DecodeGraphs, Logits
from .eager import EagerForward
from .errors import DeviceStateError
from .faults import Faults
from .input_batch import InputBatch, prepare_inputs
from .inputs import StepInputs
from .kv_cache import DeviceCache
from .mirror import DeviceMirror, HostMirror
from .model_config import ModelConfig
from .models import Qwen35
from .output import AsyncOutputPool, HostOutput, Output
from .sampler import SampleRow, sample
from .scheduler import ScheduledRow, ScheduledStep


class ModelRunner:
    """Everything that touches the device; all of it is enqueued on one stream, MAIN."""

    def __init__(
        self, config: EngineConfig, model: ModelConfig, weights: Weights, faults: Faults
    ) -> None:
        """Loads the model; raises CheckpointError."""
        self._config, self._faults, self.counters = config, faults, Counters()
        device, cuda = config.torch_device, config.torch_device.type == "cuda"
        self._main = torch.cuda.Stream() if cuda else None
        aux = torch.cuda.Stream() if cuda and model.moe else None
        with self._on_main():
            self._model = Qwen35(model, weights, device, aux)
            self._cache = DeviceCache(
                model, config.num_blocks, config.block_size, config.max_num_seqs, device
            )
            self._eager = EagerForward(self._model, self._cache, config, self.counters)
            self._mirror: DeviceMirror | HostMirror = HostMirror(config.max_num_seqs, device)
            if cuda and config.flags.device_mirror:
                self._mirror = DeviceMirror(config.max_num_seqs, device, faults)
            self._graphs: DecodeGraphs | None = None
            if config.graphs:
                self._graphs = DecodeGraphs(
                    self._model, self._cache, config, self.counters, faults
                )
            self._outputs: AsyncOutputPool | None = None
            if cuda:
                self._outputs = AsyncOutputPool(
                    config.in_flight, config.max_num_seqs, device, self.counters, faults
                )
        self._batch = InputBatch()
        self._in_flight = False  # MAIN may be running what the host enqueued
        self._last: Logits | None = None  # of the step before: the in-flight sampler reads it
        self._unread: list[Output] = []

    @contextmanager
    def _on_main(self) -> Iterator[None]:
        with torch.inference_mode():
            if self._main is None:
                yield
                return
            with torch.cuda.stream(self._main):
                yield

    # -- a step -----------------------------------------------------------------------------------

    def execute(self, step: ScheduledStep) -> Output:
        """Enqueues a step and returns the output that will hold its ids."""
        with self._on_main():
            if isinstance(self._mirror, HostMirror):
                self._drain_for_ids()
                self._mirror.collect()
            self._move_rows(step)
            carried = sum(row.carried for row in step.rows)
            inputs = prepare_inputs(
                step, self._mirror.carried_ids(carried), self._config.block_size,
                self._config.graph_query_len,
            )  # fmt: skip
            rows = [self._sample_row(row) for row in step.rows]
            self._drain_for_inputs()
            self._last = self._forward(inputs)
            # E41: RAW and WAR on the logits; sampler and next replay follow on MAIN.
            return self._send(step, sample(self._last.values, rows))

    def _move_rows(self, step: ScheduledStep) -> None:
        sources = self._batch.arrange(step)
        if sources is not None:
            self._mirror.move_rows(sources)
            self.counters.row_moves += 1
        for row in step.rows:
            if row.fresh and not self._faults.hit("E53.keep-state"):
                self._cache.reset_state(row.request.state_slot)

    def _drain_for_ids(self) -> None:
        """Before the host moves or reads the ids of the step before."""
        if self._in_flight and self._main is not None and not self._faults.hit("E05.skip-drain"):
            self._main.synchronize()  # E05: HOST-RAW on the copied ids, HOST-WAR on step inputs
            self.counters.drains += 1
            self._in_flight = False

    def _drain_for_inputs(self) -> None:
        """Before the host refills inputs that the step before may still read."""
        if not self._in_flight or self._main is None:
            return
        if self._skips_drain():
            self.counters.drain_skips += 1
            if self._config.flags.executor_trace and self.counters.drain_skips % 200 == 1:
                print(f"engine: drain skipped {self.counters.drain_skips} times", flush=True)
        elif not self._faults.hit("E06.skip-drain"):
            self._main.synchronize()  # E06: HOST-WAR on eager inputs and on captured copies
            self.counters.drains += 1
            self._in_flight = False
        self._last = None  # E06: UAF if the logits were freed for real while MAIN reads them

    def _skips_drain(self) -> bool:
        """E07: only after a graph step of Option A; eager inputs have no event of their own."""
        if self._faults.hit("E07.always-skip"):
            return True
        return self._config.flags.executor and self._last is not None and not self._last.owning

    def _forward(self, inputs: StepInputs) -> Logits:
        hidden = self._embed(inputs)
        if self._graphs is not None and self._graphs.takes(inputs):
            return self._graphs.run(inputs, hidden)
        return Logits(self._eager.run(inputs, hidden), owning=True)

    def _embed(self, inputs: StepInputs) -> Tensor:
        """[T, H]; E18: RAW on the sampled ids: upload, combine and embedding follow on MAIN."""
        if len(inputs.ids) != inputs.tokens or inputs.tokens != len(inputs.positions):
            raise DeviceStateError(f"{len(inputs.ids)} ids for {len(inputs.positions)} positions")
        # E21: WAR on a temporary. It is pageable, so the copy has read it when the call returns.
        ids = torch.tensor(inputs.ids).to(self._config.torch_device, non_blocking=True)
        self._mirror.combine(ids, inputs.carried)
        return self._model.embed(ids)

    # -- its output -------------------------------------------------------------------------------

    def _send(self, step: ScheduledStep, sampled: Tensor) -> Output:
        self._mirror.scatter(sampled)
        output: Output
        if self._outputs is None:
            output = HostOutput(step, sampled)
        else:
            output = self._outputs.send(step, sampled)
            self._in_flight = True
        self._unread.append(output)
        return output

    def read(self, output: Output) -> list[int]:
        """The ids of a step, one per row; waits for them."""
        self._unread.remove(output)
        return output.get()

    def drop(self, output: Output) -> None:
        """Gives up a step's ids."""
        self._unread.remove(output)
        with self._on_main():
            output.drop()

    def _sample_row(self, row: ScheduledRow) -> SampleRow:
        request = row.request
        index = row.start + row.count - len(request.prompt_ids)
        if not request.params.penalized:
            return SampleRow(request.params, index)
        ids = [*request.output_ids, *self._unread_ids(row)]
        return SampleRow(request.params, index, request.prompt_ids, ids)

    def _unread_ids(self, row: ScheduledRow) -> list[int]:
        """Ids of the row's request that steps in flight are sampling: penalties need them now."""
        ids = []
        for output in self._unread:
            for index, other in enumerate(output.step.rows):
                if other.request is row.request and other.samples:
                    ids.append(output.peek()[index])
        return ids

    # -- around steps -----------------------------------------------------------------------------

    def cache_bytes(self) -> dict[str, Tensor]:
        """Host copies of all pages and states, by layer."""
        with self._on_main():
            return self._cache.owned_bytes()

    def close(self) -> None:
        """Frees the device; nothing is dropped while it may be in use."""
        if self._main is not None:
            torch.cuda.synchronize()  # E62: UAF at exit
        if self._graphs is not None:
            self._graphs.close()

