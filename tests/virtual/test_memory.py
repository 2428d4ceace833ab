"""Counters, fresh bytes and marks of device memory, as torch's allocators have them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

from redgreen.backend import ALLOCATORS
from redgreen.schedule import LAZY
from redgreen.trace import Kind
from redgreen.virtual import VirtualGPU
from tests.child import in_child

MIB = 1 << 20
cuda = torch.cuda


def empty(size: int) -> torch.Tensor:
    return torch.empty(size, dtype=torch.uint8, device="cuda")


def under(allocator: str, call: Callable[[], object], lazy: bool = False) -> object:
    """What ``call`` returns, in a process of its own."""

    def run() -> object:
        with VirtualGPU(LAZY, allocator=allocator) if lazy else VirtualGPU(allocator=allocator):
            return call()

    return in_child(run)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_counters(allocator: str) -> None:
    def counted() -> tuple[int, ...]:
        a, b = empty(1), empty(3 * MIB)
        with cuda.stream(cuda.Stream()):
            c = empty(513)
        most, reserved = cuda.memory_allocated(), cuda.memory_reserved()
        del a, b, c
        d = empty(512)
        left = cuda.memory_allocated()
        cuda.synchronize()
        cuda.empty_cache()
        kept, peak = cuda.memory_reserved(), cuda.max_memory_allocated()
        del d
        cuda.empty_cache()
        assert cuda.max_memory_reserved() == reserved
        return most, left, peak, reserved // MIB, kept // MIB, cuda.memory_reserved()

    most = 512 + 3 * MIB + 1024
    segments = (32, 32, 0) if allocator == "stream-ordered" else (24, 2, 0)
    assert under(allocator, counted) == (most, 512, most, *segments)


def test_nothing_is_allocated_for_nothing() -> None:
    def counted() -> tuple[int, int, int]:
        side, nothing = cuda.Stream(), empty(0)
        nothing.record_stream(side)
        found = cuda.memory_allocated(), nothing.data_ptr()
        del nothing
        return *found, cuda.memory_reserved()

    assert under("native", counted) == (0, 0, 0)


@pytest.mark.parametrize("allocator", ALLOCATORS)
def test_what_was_given_back_comes_back_fresh(allocator: str) -> None:
    """And without empty_cache it holds the old bytes."""

    def run(give_back: bool) -> bool:
        kept, size = empty(512), 64 * MIB
        a = empty(size)
        a[-8:].fill_(3)
        a[40 * MIB : 40 * MIB + 8].fill_(3)
        del a
        cuda.synchronize()
        if give_back:
            cuda.empty_cache()
        found = empty(size)[40 * MIB : 40 * MIB + 8].tolist()
        del kept
        return found == [3] * 8

    assert under(allocator, lambda: run(True)) is False
    assert under(allocator, lambda: run(False)) is True


def test_only_segments_that_are_free_as_a_whole_go_back() -> None:
    def run() -> tuple[int, bool]:
        a, b = empty(4 * MIB), empty(4 * MIB)
        a.fill_(3)
        address = a.data_ptr()
        del a
        cuda.empty_cache()
        c = empty(4 * MIB)
        del b
        return cuda.memory_reserved() // MIB, c.data_ptr() == address and int(c[0]) == 3

    assert under("native", run) == (20, True)


def test_the_smallest_block_that_fits_then_the_lowest_address() -> None:
    def run() -> tuple[bool, ...]:
        parts = [empty(n * 512) for n in (4, 1, 3, 1, 2, 1, 2, 1)]
        addresses = [part.data_ptr() for part in parts]
        for place in (6, 4, 2, 0):  # by age the largest comes last, the highest address first
            parts[place] = empty(0)
        found = [empty(n * 512) for n in (2, 2, 2)]
        return tuple(a.data_ptr() == addresses[i] for a, i in zip(found, (4, 6, 2), strict=True))

    assert under("native", run) == (True,) * 3


def test_a_mark_is_asked_about_only_where_it_matters() -> None:
    """A smaller hole is taken whether or not the marked block is free; a larger one is not."""

    def run() -> tuple[int, int]:
        def asked() -> int:
            return sum(work.kind is Kind.CHOICE for work in gpu.gpu.machine.works)

        with VirtualGPU(LAZY) as gpu:
            side = cuda.Stream()
            parts = [empty(n * 512) for n in (1, 1, 2, 1)]
            with cuda.stream(side):
                parts[2].fill_(1)
            parts[2].record_stream(side)
            parts[2] = parts[0] = empty(0)
            small = empty(512)
            before = asked()
            large = empty(1024)
            del small, large
            return before, asked()

    assert in_child(run) == (0, 1)


def lent_in_a_capture(x: torch.Tensor) -> tuple[torch.Tensor, int]:
    """A block of the capture is used on a side stream and freed."""
    side, capturing = cuda.Stream(), cuda.current_stream()
    a = x + 1
    side.wait_stream(capturing)
    with cuda.stream(side):
        b = a * 2
    a.record_stream(side)
    capturing.wait_stream(side)
    return b, a.data_ptr()


def test_marks_of_a_capture_wait_for_its_end() -> None:
    """process_events is no part of a capture, and neither are the marks of what is freed in it."""

    def run() -> tuple[bool, bool]:
        x, graph = torch.zeros(128, device="cuda"), cuda.CUDAGraph()
        with cuda.graph(graph):
            capturing = cuda.current_stream()
            b, address = lent_in_a_capture(x)
            c = x + 2
        early = c.data_ptr() == address
        cuda.synchronize()
        again = cuda.CUDAGraph()
        with cuda.graph(again, pool=graph.pool(), stream=capturing):
            d = x + 3
        del b, c
        return early, d.data_ptr() == address

    assert under("native", run) == (False, True)  # each capture begins with an empty_cache


def test_a_marked_free_in_a_capture_fails_with_cuda_malloc_async() -> None:
    """torch's own stream, which frees, has no way to join the capture again."""

    def run() -> str:
        x, graph = torch.zeros(128, device="cuda"), cuda.CUDAGraph()
        try:
            with cuda.graph(graph):
                lent_in_a_capture(x)
        except torch.AcceleratorError as error:
            return str(error)
        return ""

    assert under("stream-ordered", run) == "CUDA error: capturing stream has unjoined work"
    assert under("expandable", run) == ""
