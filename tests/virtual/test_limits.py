"""Where redgreen's own bounds and bookkeeping must not decide a verdict."""

from __future__ import annotations

import contextlib

import torch

import redgreen
from redgreen.virtual import VirtualGPU
from tests.child import in_child


def test_a_refusal_in_any_run_leaves_no_verdict() -> None:
    """Only a run that is late gets there, and the program swallows it."""

    def program() -> torch.Tensor:
        side, x = torch.cuda.Stream(), torch.ones(4, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            x.add_(1)
            event = side.record_event()
        if not event.query():
            with contextlib.suppress(NotImplementedError):
                torch.cuda.Event().ipc_handle()
        torch.cuda.synchronize()
        return x

    proof = redgreen.prove(program)
    assert proof.green.verdict == "inconclusive"
    assert any("refused" in d.message for d in proof.diagnostics)


def test_a_poll_that_gives_up_after_many_tries_is_seen() -> None:
    def program() -> list[float]:
        side, host = torch.cuda.Stream(), torch.zeros(4, pin_memory=True)
        x = torch.ones(4, device="cuda")
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            host.copy_(x, non_blocking=True)
            event = side.record_event()
        for _ in range(20):
            if event.query():
                break
        return host.tolist()

    assert redgreen.prove(program).green.verdict == "refuted"


def test_a_view_of_freed_memory_fails() -> None:
    def program() -> torch.Tensor:
        x = torch.ones(4, device="cuda")
        x.untyped_storage().resize_(0)
        return x.view(2, 2) * 3

    try:
        redgreen.prove(program)
    except redgreen.SubjectRaised as error:
        assert "illegal memory access" in str(error)
    else:
        raise AssertionError("freed memory was read")


def test_very_many_rows_overlap_with_nothing_of_others() -> None:
    """So many rows count as the whole tensor; what others write there is not written over."""

    def program() -> torch.Tensor:
        rows = 6000
        side, x = torch.cuda.Stream(), torch.zeros(2 * rows, 2, device="cuda")
        mine, ones = torch.arange(rows, device="cuda"), torch.ones(rows, 2, device="cuda")
        others = mine + rows
        side.wait_stream(torch.cuda.current_stream())
        x.index_add_(0, mine, ones)
        with torch.cuda.stream(side):
            x.index_add_(0, others, ones)
        torch.cuda.current_stream().wait_stream(side)
        return x

    assert redgreen.prove(program).green.verdict == "proved"


def test_free_neighbours_on_both_sides_are_one() -> None:
    """Freed in the order first, last, middle, three blocks take one that is as large as all."""

    def program() -> bool:
        with VirtualGPU():
            whole = torch.empty(3 * 128, device="cuda")
            start = whole.data_ptr()
            del whole
            parts = [torch.empty(128, device="cuda") for _ in range(3)]
            assert [part.data_ptr() - start for part in parts] == [0, 512, 1024]
            del parts[0], parts[1], parts[0]
            return torch.empty(3 * 128, device="cuda").data_ptr() == start

    assert in_child(program)
