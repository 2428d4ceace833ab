"""Rule 2: which copies wait, which are asynchronous, and what a call has read when it returns."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.conformance.device import Device
from tests.conformance.values import (
    BIG,
    N,
    on_device,
    pageable,
    pinned,
    seen_from,
    tracked,
    value,
)


@pytest.mark.parametrize("host", [pageable, pinned])
def test_blocking_copy_to_the_device_waits(
    gpu: Device, mode: str, host: Callable[[float], Tensor]
) -> None:
    source, destination, side = tracked(host(1)), on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        assert gpu.waits(gate, lambda: destination.copy_(source))
    assert value(destination) == 1


@pytest.mark.parametrize("host", [pageable, pinned])
def test_blocking_copy_to_the_host_waits(
    gpu: Device, mode: str, host: Callable[[float], Tensor]
) -> None:
    source, destination, side = on_device(0), host(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        source.fill_(1)
        assert gpu.waits(gate, lambda: destination.copy_(tracked(source)))
        assert value(destination) == 1


@pytest.mark.parametrize("host", [pageable, pinned])
def test_blocking_to_the_device_waits(
    gpu: Device, mode: str, host: Callable[[float], Tensor]
) -> None:
    source, side = tracked(host(1)), torch.cuda.Stream()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        assert gpu.waits(gate, lambda: source.to("cuda"))


READS: dict[str, Callable[[Tensor], object]] = {
    "cpu": lambda t: t.cpu(),
    "to_cpu": lambda t: t.to("cpu"),
    "item": lambda t: t[0].item(),
    "float": lambda t: float(t[0]),
    "tolist": lambda t: t.tolist(),
    "bool": lambda t: bool(t[0] == 1),
    "nonzero": lambda t: t.nonzero(),
    "mask": lambda t: t[t > 0],
    "equal": lambda t: torch.equal(t, t * 1),  # with itself CUDA may know without looking
    "allclose": lambda t: torch.allclose(t, t),
    "print": lambda t: str(t[:4]),
    "tensor": lambda t: torch.tensor([1.0, 2.0], device="cuda"),
    "as_tensor": lambda t: torch.as_tensor([1.0, 2.0], device="cuda"),
    "set_item_of_host_tensor": lambda t: t.__setitem__(slice(0, 2), torch.ones(2)),
}


@pytest.mark.parametrize("read", list(READS))
def test_reads_of_device_values_wait_for_their_stream(gpu: Device, mode: str, read: str) -> None:
    source, side = on_device(1), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        READS[read](source)  # kernels are loaded and memory is cached from here on
        side.synchronize()
        with gpu.hold(side) as gate:
            source.fill_(2)
            assert gpu.waits(gate, lambda: READS[read](source))


def test_item_returns_the_awaited_value(gpu: Device, mode: str) -> None:
    source, side = on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    got: list[float] = []
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        source.fill_(3)
        gpu.waits(gate, lambda: got.append(source[0].item()))
    assert got == [3]


NO_READS: dict[str, Callable[[Tensor], object]] = {
    "multiply_by_number": lambda t: t * 2.0,
    "set_number": lambda t: t.__setitem__(slice(0, 2), 5.0),
    "get_slice": lambda t: t[1:3],
    "get_row": lambda t: t[1],
    "index_with_device_indices": lambda t: t[torch.zeros(4, device="cuda", dtype=torch.long)],
    "shape": lambda t: (t.shape, t.dtype, t.device, t.data_ptr(), len(t)),
    "where": lambda t: torch.where(t > 0, t, 0),
    "arange": lambda t: torch.arange(8, device="cuda"),
    "zeros": lambda t: torch.zeros(8, device="cuda"),
    "full": lambda t: torch.full((8,), 2.0, device="cuda"),
    "half": lambda t: t.half(),
    "to_same_device": lambda t: t.to("cuda"),
    "sum": lambda t: t.sum(),
    "record": lambda t: torch.cuda.Event().record(),
}


@pytest.mark.parametrize("work", list(NO_READS))
def test_work_that_reads_no_value_does_not_wait(gpu: Device, mode: str, work: str) -> None:
    source, side = on_device(1), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        kept = NO_READS[work](source)
        side.synchronize()
        del kept
        with gpu.hold(side) as gate:
            assert not gpu.waits(gate, lambda: NO_READS[work](source))


def test_non_blocking_pinned_to_device_does_not_wait(gpu: Device, mode: str) -> None:
    source, destination, side = tracked(pinned(1)), on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        assert not gpu.waits(gate, lambda: destination.copy_(source, non_blocking=True))
    assert value(destination) == 1


def test_non_blocking_device_to_pinned_does_not_wait(gpu: Device, mode: str) -> None:
    source, destination, side = tracked(on_device(1)), pinned(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        assert not gpu.waits(gate, lambda: destination.copy_(source, non_blocking=True))
        assert value(destination) == 0


def test_non_blocking_small_pageable_source_is_consumed_and_the_write_is_pending(
    gpu: Device, mode: str
) -> None:
    source, destination = tracked(pageable(1)), on_device(0)
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        assert not gpu.waits(gate, lambda: destination.copy_(source, non_blocking=True))
        source.detach().fill_(2)
        assert seen_from(other, destination) == 0
    assert value(destination) == 1


def test_non_blocking_large_pageable_source_blocks_the_host(gpu: Device, mode: str) -> None:
    source, destination = tracked(pageable(1, BIG)), on_device(0, BIG)
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        assert gpu.waits(gate, lambda: destination.copy_(source, non_blocking=True))
        source.detach().fill_(2)
    assert value(destination) == 1


def test_non_blocking_device_to_pageable_returns_when_complete(gpu: Device, mode: str) -> None:
    source, destination, side = on_device(0), pageable(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        source.fill_(1)
        assert gpu.waits(gate, lambda: destination.copy_(tracked(source), non_blocking=True))
        assert value(destination) == 1


def test_non_blocking_to_cpu_returns_pinned_memory_and_does_not_wait(
    gpu: Device, mode: str
) -> None:
    source, side = tracked(on_device(1)), torch.cuda.Stream()
    got: list[Tensor] = []
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        assert not gpu.waits(gate, lambda: got.append(source.to("cpu", non_blocking=True)))
        assert got[0].is_pinned()
        assert got[0].device.type == "cpu"
    side.synchronize()
    assert value(got[0]) == 1


def test_blocking_to_cpu_returns_pageable_memory(gpu: Device, mode: str) -> None:
    assert not on_device(1).to("cpu").is_pinned()
    assert not on_device(1).cpu().is_pinned()


def test_strided_pinned_source_is_read_at_the_call(gpu: Device, mode: str) -> None:
    source, destination, side = tracked(pinned(1, 2 * N)), on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        strided = source[::2]
        assert not gpu.waits(gate, lambda: destination.copy_(strided, non_blocking=True))
        source.detach().fill_(2)
    assert value(destination) == 1


def test_strided_pinned_destination_is_complete_at_return(gpu: Device, mode: str) -> None:
    source, destination, side = on_device(0), pinned(0, 2 * N), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        source.fill_(1)
        copy = lambda: destination[::2].copy_(source, non_blocking=True)  # noqa: E731
        assert gpu.waits(gate, copy)
        assert value(destination[::2]) == 1
        assert value(destination[1::2]) == 0


def test_blocking_copy_waits_for_its_own_stream_only(gpu: Device, mode: str) -> None:
    source, held, free = tracked(on_device(1)), torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(held) as gate, torch.cuda.stream(free):
        assert not gpu.waits(gate, lambda: source.cpu())


def test_blocking_device_copy_does_not_wait(gpu: Device, mode: str) -> None:
    source, destination, side = tracked(on_device(1)), on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        assert not gpu.waits(gate, lambda: destination.copy_(source))


def test_pin_memory_copies_at_the_call(gpu: Device, mode: str) -> None:
    source, destination, side = pageable(1), on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side):
        copy = source.pin_memory()
        destination.copy_(copy, non_blocking=True)
        source.fill_(2)
    assert copy.is_pinned()
    assert value(destination) == 1


def test_pin_memory_of_a_pinned_tensor_is_that_tensor(gpu: Device) -> None:
    source = pinned(1)
    assert source.pin_memory() is source or source.pin_memory().data_ptr() == source.data_ptr()


def test_empty_copy_does_not_wait(gpu: Device) -> None:
    source, side = on_device(1)[:0], torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        assert not gpu.waits(gate, lambda: source.cpu())
