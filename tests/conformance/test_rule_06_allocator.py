"""Rule 6: the caching allocator hands freed blocks out again on their own stream, at once."""

from __future__ import annotations

import gc
import itertools

import pytest
import torch
from torch import Tensor

from tests.conformance.device import Device
from tests.conformance.values import N, on_device, value

# A size that nothing else allocates, so that the block in question is the best fit.
SIZE = 5 * N


def block(value: float = 0.0) -> Tensor:
    return on_device(value, SIZE)


def test_a_freed_block_is_taken_by_the_next_allocation_that_fits(gpu: Device, mode: str) -> None:
    a = block()
    address = a.data_ptr()
    del a
    assert block().data_ptr() == address


def test_a_freed_block_is_reused_before_its_work_is_done(gpu: Device, mode: str) -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        a = block()
        side.synchronize()
        with gpu.hold(side) as gate:
            a.fill_(1)
            address = a.data_ptr()
            del a
            b: list[Tensor] = []
            assert not gpu.waits(gate, lambda: b.append(block(2)))
            assert b[0].data_ptr() == address
    assert value(b[0]) == 2


def test_another_stream_does_not_get_the_block(gpu: Device) -> None:
    a = block()
    address = a.data_ptr()
    del a
    with torch.cuda.stream(torch.cuda.Stream()):
        assert block().data_ptr() != address
    assert block().data_ptr() == address


def test_the_block_goes_back_to_the_stream_that_allocated_it(gpu: Device) -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        a = block()
    address = a.data_ptr()
    torch.cuda.synchronize()
    a.fill_(1)
    del a
    assert block().data_ptr() != address
    with torch.cuda.stream(side):
        assert block().data_ptr() == address


def test_a_bigger_request_does_not_get_the_block(gpu: Device) -> None:
    kept = [block() for _ in range(3)]
    address = kept[1].data_ptr()
    kept[1] = block()
    bigger = torch.empty(2 * SIZE, device="cuda")
    assert bigger.data_ptr() != address


def test_a_smaller_request_may_get_the_block(gpu: Device) -> None:
    kept: list[Tensor | None] = [block() for _ in range(3)]
    assert kept[1] is not None
    address = kept[1].data_ptr()
    kept[1] = None
    assert torch.empty(SIZE - 8, device="cuda").data_ptr() == address


def test_the_block_freed_first_goes_first(gpu: Device) -> None:
    kept: list[Tensor | None] = [block() for _ in range(5)]
    addresses = [t.data_ptr() for t in kept if t is not None]
    kept[1] = None
    kept[3] = None
    assert [block().data_ptr(), block().data_ptr()][0] == addresses[1]


def test_two_live_blocks_do_not_overlap(gpu: Device) -> None:
    live = [block() for _ in range(4)]
    spans = sorted((t.data_ptr(), t.nbytes) for t in live)
    for (first, size), (second, _) in itertools.pairwise(spans):
        assert first + size <= second


def test_a_reused_block_holds_its_old_bytes(gpu: Device) -> None:
    a = block(7)
    address = a.data_ptr()
    del a
    b = torch.empty(SIZE, device="cuda")
    assert b.data_ptr() == address
    assert value(b) == 7


def test_use_on_another_stream_is_not_protected(gpu: Device, mode: str) -> None:
    a, out, side = block(1), block(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            out.copy_(a)
        del a
        other = block(2)
        torch.cuda.default_stream().synchronize()
    assert value(out) == 2
    assert value(other) == 2


def test_record_stream_postpones_reuse(gpu: Device, mode: str) -> None:
    a, out, side = block(1), block(0), torch.cuda.Stream()
    address = a.data_ptr()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            out.copy_(a)
        a.record_stream(side)
        del a
        other = block(2)
        assert other.data_ptr() != address
        torch.cuda.default_stream().synchronize()
    assert value(out) == 1


def test_a_recorded_block_comes_back_when_its_work_is_done(gpu: Device) -> None:
    a, out, side = block(1), block(0), torch.cuda.Stream()
    address = a.data_ptr()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            out.copy_(a)
        a.record_stream(side)
        del a
    side.synchronize()
    assert block().data_ptr() == address


def test_record_stream_covers_work_up_to_the_free(gpu: Device) -> None:
    a, out, side = block(1), block(0), torch.cuda.Stream()
    address = a.data_ptr()
    torch.cuda.synchronize()
    a.record_stream(side)
    with gpu.hold(side):
        with torch.cuda.stream(side):
            out.copy_(a)
        del a
        assert block(2).data_ptr() != address
    assert value(out) == 1


def test_record_stream_does_not_cover_work_after_the_free(gpu: Device) -> None:
    a, side = block(1), torch.cuda.Stream()
    address = a.data_ptr()
    torch.cuda.synchronize()
    a.record_stream(side)
    del a
    side.record_event().synchronize()  # queued behind the allocator's own mark
    with gpu.hold(side):
        with torch.cuda.stream(side):
            torch.cuda.Event().record()
        assert block().data_ptr() == address


def test_record_stream_on_the_allocating_stream_does_nothing(gpu: Device) -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        a = block()
        address = a.data_ptr()
        side.synchronize()
        with gpu.hold(side):
            a.fill_(1)
            a.record_stream(side)
            del a
            assert block().data_ptr() == address


def test_record_stream_of_several_streams(gpu: Device) -> None:
    a, (one, two) = block(1), (torch.cuda.Stream(), torch.cuda.Stream())
    address = a.data_ptr()
    torch.cuda.synchronize()
    a.record_stream(one)
    a.record_stream(two)
    with gpu.hold(two):
        with torch.cuda.stream(two):
            a.add_(1)
        del a
        one.synchronize()
        assert block().data_ptr() != address
    two.synchronize()
    assert block().data_ptr() == address


def test_record_stream_through_a_view_covers_the_block(gpu: Device) -> None:
    a, out, side = block(1), block(0), torch.cuda.Stream()
    address = a.data_ptr()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            out.copy_(a)
        a[5:10].record_stream(side)
        del a
        assert block(2).data_ptr() != address
    assert value(out) == 1


def test_resize_to_zero_frees_the_block(gpu: Device, mode: str) -> None:
    a = block()
    address = a.data_ptr()
    a.untyped_storage().resize_(0)
    assert a.untyped_storage().size() == 0
    assert block().data_ptr() == address


def test_assigning_data_frees_the_block(gpu: Device) -> None:
    a, other = torch.nn.Parameter(block()), torch.zeros(1, device="cuda")
    address = a.data_ptr()
    a.data = other
    assert a.data_ptr() == other.data_ptr()
    assert block().data_ptr() == address


def test_set_frees_the_block(gpu: Device) -> None:
    a, other = block(), torch.zeros(1, device="cuda")
    address = a.data_ptr()
    a.set_(other)
    assert a.data_ptr() == other.data_ptr()
    assert block().data_ptr() == address


def test_a_view_keeps_the_block(gpu: Device, mode: str) -> None:
    a = block(1)
    view, address = a[3:5], a.data_ptr()
    del a
    assert block(2).data_ptr() != address
    assert value(view) == 1


def test_a_storage_keeps_the_block(gpu: Device) -> None:
    a = block(1)
    storage, address = a.untyped_storage(), a.data_ptr()
    del a
    assert block(2).data_ptr() != address
    assert storage.data_ptr() == address


def test_the_graph_of_autograd_keeps_the_block(gpu: Device) -> None:
    weight = block(3).requires_grad_()
    a = block(2)
    address = a.data_ptr()
    out = (weight * a).sum()
    del a
    assert block(9).data_ptr() != address
    out.backward()
    assert weight.grad is not None
    assert value(weight.grad) == 2


@pytest.mark.own_process
def test_a_temporary_of_an_expression_is_reused(gpu: Device, mode: str) -> None:
    a = block(1)
    b = (a + 1) * 2
    address = b.data_ptr()
    del b
    c = (a + 1) * 3
    assert value(c) == 6
    del c
    one, two = block(), block()
    assert address in {one.data_ptr(), two.data_ptr()}


def test_a_cycle_keeps_the_block_until_it_is_collected(gpu: Device) -> None:
    gc.disable()
    holder: list[object] = [block()]
    assert isinstance(holder[0], Tensor)
    address = holder[0].data_ptr()
    holder.append(holder)
    del holder
    assert block().data_ptr() != address
    gc.collect()
    gc.enable()
    assert address in {t.data_ptr() for t in [block(), block()]}


def test_memory_allocated_follows_the_live_blocks(gpu: Device) -> None:
    before = torch.cuda.memory_allocated()
    a = torch.empty(1, device="cuda")
    assert torch.cuda.memory_allocated() - before == 512
    b = torch.empty(129, device="cuda")
    assert torch.cuda.memory_allocated() - before == 512 + 1024
    del a, b
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() >= before + 512 + 1024


def test_empty_cache_keeps_live_blocks(gpu: Device) -> None:
    a = block(4)
    torch.cuda.empty_cache()
    assert value(a) == 4
