"""What the recorder of a real GPU leaves alone, gives back, or refuses."""

from __future__ import annotations

import dataclasses
import sys
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from redgreen.api import UsageError, prove
from redgreen.faults import Fault
from redgreen.schedule import LAZY
from redgreen.silicon import overwrite
from redgreen.silicon.driver import PATTERN, unused
from redgreen.silicon.gates import SIZE
from tests.silicon.fake import recording, run

# -- memory that outlives the warm-up --------------------------------------------------------------


def test_a_live_block_is_not_unused() -> None:
    blocks = [{"size": 512, "state": "active_allocated"}, {"size": 1024, "state": "inactive"},
              {"size": 512, "state": "active_allocated"},
              {"size": 2048, "state": "active_pending_free"}]  # fmt: skip
    snapshot = [{"address": 4096, "total_size": 4096, "blocks": blocks}]
    assert unused(snapshot) == [(4608, 1024), (6144, 2048)]


def test_only_what_the_host_allocator_has_to_give_is_overwritten() -> None:
    alive, free, new = (torch.zeros(8, dtype=torch.uint8) for _ in range(3))
    given = iter((free, new))
    overwrite({alive.data_ptr(): 8, free.data_ptr(): 5}, lambda nbytes: next(given))
    assert free.view(torch.int32).tolist() == [PATTERN, PATTERN]
    assert alive.tolist() == new.tolist() == [0] * 8


def test_a_tensor_of_an_earlier_run_is_refused() -> None:
    with recording() as first:
        kept, gone = torch.zeros(4, device="meta"), torch.zeros(4, device="meta")
        first.finish()
    del gone
    alive = first.session.blocks.alive()
    assert len(alive) == 1
    with recording() as second:
        second.session.blocks.earlier = alive
        torch.ones(4, device="meta").add_(1)
        assert second.session.machine.trace.refusals == []
        kept.add_(1)
        (refusal,) = second.finish().trace.refusals
    assert "keeps from one run" in refusal


def _freed_under_a_reader(r: Any) -> Any:
    """A block that a kernel of another stream uses, freed; and that kernel's work."""
    side = torch.cuda.Stream()
    data = torch.zeros(4, device="meta")
    block = r.session.blocks.of(data)
    with torch.cuda.stream(side):
        _ = data * 2
    data.record_stream(side)
    del data
    work = next(w for w in r.session.machine.works if w.op == "aten.mul.Tensor")
    return dataclasses.replace(block, recorded={}), work


@pytest.mark.parametrize("done", [True, False])
def test_a_reuse_is_believed_as_far_as_the_gates_are_open(done: bool) -> None:
    with recording(LAZY) as r:
        block, work = _freed_under_a_reader(r)
        assert not work.done and r.session.blocks.pending
        if done:
            r.session.machine.force(work)
        r.session.blocks._landed(block)
        assert ("held at that moment" in str(r.finish().trace.refusals)) is not done


# -- factories -------------------------------------------------------------------------------------


def test_factories_keep_what_they_are_told() -> None:
    host, data = torch.zeros(3), np.zeros(3)
    with recording():
        assert torch.asarray(host, copy=True).data_ptr() != host.data_ptr()
        assert torch.asarray(host).data_ptr() == host.data_ptr()
        with pytest.raises(ValueError, match="alias"):
            torch.asarray(host, dtype=torch.float64, copy=False)
        copied = torch.asarray(data, copy=True, dtype=torch.float32, requires_grad=True)
        assert copied.dtype is torch.float32 and copied.requires_grad and copied.is_leaf
        made = torch.tensor([1.0], device="meta", dtype=torch.float64, requires_grad=True)
        assert made.device.type == "meta" and made.dtype is torch.float64
        assert made.requires_grad and made.is_leaf
        moved = torch.as_tensor(host, device="meta", dtype=torch.float16)
        assert moved.device.type == "meta" and moved.dtype is torch.float16


# -- graphs ----------------------------------------------------------------------------------------


def test_words_of_launches_are_used_again() -> None:
    with recording(LAZY) as r:
        total, graph = torch.zeros(4, device="meta"), torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            total.add_(1)
        for _ in range(5):
            graph.replay()
        torch.cuda.synchronize()
        assert len(r.session.gates._free) == SIZE - 1  # the node's


def test_captures_that_overlap_have_numbers_of_their_own() -> None:
    with recording():
        graphs = [torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()]
        streams = [torch.cuda.Stream(), torch.cuda.Stream()]
        for what in ("capture_begin", "capture_end"):
            for graph, stream in zip(graphs, streams, strict=True):
                with torch.cuda.stream(stream):
                    getattr(graph, what)()
        assert [graph._redgreen.id for graph in graphs] == [1, 2]  # type: ignore[attr-defined]


def _forked() -> None:
    side, data = torch.cuda.Stream(), torch.zeros(4, device="meta")
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        main = torch.cuda.current_stream()
        side.wait_stream(main)
        with torch.cuda.stream(side):
            data.add_(1)
        main.wait_stream(side)
    graph.replay()


def test_a_cut_inside_a_graph_is_refused_and_the_call_is_made() -> None:
    serial = run(_forked)
    inside = [e for s in serial.trace.steps if s.launch for e in s.edges]
    fault = Fault("cut", serial.trace.edges[inside[0]])
    record = run(_forked, faults=frozenset((fault,)))
    assert "inside of it can be cut on the virtual GPU only" in record.trace.refusals[0]
    assert record.hits == {fault: 1}
    assert [s.label for s in record.trace.steps] == [s.label for s in serial.trace.steps]


# -- what is not known there -----------------------------------------------------------------------


def test_mutants() -> None:
    with pytest.raises(UsageError, match="mutants: they are made on the virtual GPU only"):
        prove(_forked, device="cuda", mutants="late")
    edge = run(_forked).trace.edges[0]
    record = run(_forked, faults=frozenset((Fault("late", edge),)))
    assert "mutants" in record.trace.refusals[0]


def _triton(monkeypatch: pytest.MonkeyPatch) -> Any:
    module: Any = ModuleType("triton.runtime.jit")
    module.JITFunction = type("JITFunction", (), {"run": lambda self, *a, **k: len(a)})
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", module)
    return module.JITFunction()


def test_a_kernel_of_triton_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    kernel = _triton(monkeypatch)
    assert run(lambda: torch.zeros(4, device="meta")).trace.refusals == []
    with recording() as r:
        assert kernel.run(1, 2) == 2
        assert "kernel of Triton" in r.finish().trace.refusals[0]
    assert not hasattr(type(kernel).run, "__wrapped__")


def test_triton_that_comes_too_late_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with recording() as r:
        _triton(monkeypatch)
        assert "imported during the measured run" in r.finish().trace.refusals[0]
