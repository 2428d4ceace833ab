"""Rule 7: a freed pinned block is protected until its streams are done; a live one is not."""

from __future__ import annotations

import torch
from torch import Tensor

from tests.conformance.device import Device
from tests.conformance.values import on_device, pageable, value

SIZE = 3 << 18  # 3 MiB: the host allocator rounds to 4 MiB, which nothing else asks for


def block(value: float) -> Tensor:
    return torch.full((SIZE,), float(value), pin_memory=True)


def test_a_freed_unused_block_is_reused(gpu: Device) -> None:
    a = block(0)
    address = a.data_ptr()
    del a
    assert block(0).data_ptr() == address


def test_a_freed_block_is_protected_until_the_copy_from_it_is_done(gpu: Device, mode: str) -> None:
    source, spare, side = block(1), block(0), torch.cuda.Stream()
    destination, address = on_device(0, SIZE), source.data_ptr()
    del spare  # so that the allocation below need not ask the driver
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        del source
        other = block(2)
        assert other.data_ptr() != address
    assert value(destination) == 1


def test_a_freed_block_is_reused_once_the_copy_from_it_is_done(gpu: Device) -> None:
    source, side = block(1), torch.cuda.Stream()
    destination, address = on_device(0, SIZE), source.data_ptr()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        destination.copy_(source, non_blocking=True)
    del source
    side.synchronize()
    assert block(2).data_ptr() == address
    assert value(destination) == 1


def test_a_freed_block_is_protected_until_the_copy_to_it_is_done(gpu: Device) -> None:
    source, host, spare, side = on_device(1, SIZE), block(0), block(0), torch.cuda.Stream()
    address = host.data_ptr()
    del spare
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            host.copy_(source, non_blocking=True)
        del host
        other = block(2)
        assert other.data_ptr() != address
    side.synchronize()
    assert value(other) == 2


def test_a_copy_from_a_view_protects_the_block(gpu: Device) -> None:
    source, spare, side = block(1), block(0), torch.cuda.Stream()
    destination, address = on_device(0), source.data_ptr()
    del spare
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source[7 : 7 + destination.numel()], non_blocking=True)
        del source
        other = block(2)
        assert other.data_ptr() != address
    assert value(destination) == 1


def test_every_stream_that_used_the_block_counts(gpu: Device) -> None:
    source, spare = block(1), block(0)
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    destination, address = on_device(0, SIZE), source.data_ptr()
    del spare
    torch.cuda.synchronize()
    with gpu.hold(two):
        for stream in (one, two):
            with torch.cuda.stream(stream):
                destination.copy_(source, non_blocking=True)
        del source
        one.synchronize()
        other = block(2)
        assert other.data_ptr() != address
    assert value(destination) == 1


def test_a_temporary_pinned_copy_is_safe(gpu: Device, mode: str) -> None:
    host, spare, side = pageable(1, SIZE), [block(0), block(0)], torch.cuda.Stream()
    destination = on_device(0, SIZE)
    del spare
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(host.pin_memory(), non_blocking=True)
        other = block(2)
        assert value(other) == 2
    assert value(destination) == 1


def test_a_live_block_is_not_protected_against_rewriting(gpu: Device, mode: str) -> None:
    source, destination, side = block(1), on_device(0, SIZE), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        source.fill_(2)
    assert value(destination) == 2


def test_blocking_copies_leave_nothing_to_protect(gpu: Device) -> None:
    source = block(1)
    destination, address = source.cuda(), source.data_ptr()
    del source
    assert block(2).data_ptr() == address
    assert value(destination) == 1
