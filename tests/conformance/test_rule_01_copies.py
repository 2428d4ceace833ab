"""Rule 1: copies read their source and write their destination at execution, not at enqueue."""

from __future__ import annotations

import torch

from tests.conformance.device import Device
from tests.conformance.values import N, on_device, pinned, seen_from, tracked, value


def test_pinned_source_is_read_at_execution(gpu: Device, mode: str) -> None:
    source, destination, side = tracked(pinned(1)), on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        source.detach().fill_(2)
    assert value(destination) == 2


def test_pinned_source_of_to_is_read_at_execution(gpu: Device, mode: str) -> None:
    source, side = tracked(pinned(1)), torch.cuda.Stream()
    with torch.cuda.stream(side), gpu.hold(side):
        destination = source.to("cuda", non_blocking=True)
        source.detach().fill_(2)
    assert value(destination) == 2


def test_pinned_source_of_cuda_is_read_at_execution(gpu: Device, mode: str) -> None:
    source, side = tracked(pinned(1)), torch.cuda.Stream()
    with torch.cuda.stream(side), gpu.hold(side):
        destination = source.cuda(non_blocking=True)
        source.detach().fill_(2)
    assert value(destination) == 2


def test_slice_of_a_pinned_source_is_read_at_execution(gpu: Device, mode: str) -> None:
    source, destination, side = tracked(pinned(1, 2 * N)), on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source[N:], non_blocking=True)
        source.detach()[N:].fill_(2)
    assert value(destination) == 2


def test_bytes_beside_a_copied_slice_do_not_matter(gpu: Device) -> None:
    source, destination, side = pinned(1, 2 * N), on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source[N:], non_blocking=True)
        source[:N].fill_(2)
    assert value(destination) == 1


def test_pinned_destination_is_written_at_execution(gpu: Device, mode: str) -> None:
    source, destination, side = tracked(on_device(1)), pinned(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        assert value(destination) == 0
    side.synchronize()
    assert value(destination) == 1


def test_pinned_destination_overwrites_what_the_host_wrote_meanwhile(gpu: Device) -> None:
    source, destination, side = on_device(1), pinned(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        destination.fill_(5)
    side.synchronize()
    assert value(destination) == 1


def test_device_copy_reads_at_execution(gpu: Device, mode: str) -> None:
    source, destination = tracked(on_device(1)), on_device(0)
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source)
        with torch.cuda.stream(other):
            source.detach().fill_(2)
        other.synchronize()
    assert value(destination) == 2


def test_device_copy_writes_at_execution(gpu: Device, mode: str) -> None:
    source, destination = tracked(on_device(1)), on_device(0)
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source)
        assert seen_from(other, destination) == 0
    assert value(destination) == 1


def test_kernel_reads_its_operands_at_execution(gpu: Device, mode: str) -> None:
    a, b = tracked(on_device(1)), on_device(10)
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side):
        result = a * b
        with torch.cuda.stream(other):
            a.detach().fill_(2)
        other.synchronize()
    assert value(result) == 20


def test_kernel_writes_in_place_at_execution(gpu: Device, mode: str) -> None:
    a, side, other = on_device(1), torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            a.add_(1)
        assert seen_from(other, a) == 1
    assert value(a) == 2


def test_strided_device_destination_still_reads_a_pinned_source_at_execution(
    gpu: Device, mode: str
) -> None:
    source, rows = tracked(pinned(1).view(32, 32)), torch.zeros(32, 64, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        rows[:, ::2].copy_(source, non_blocking=True)  # its temporary is cached now
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            rows[:, ::2].copy_(source, non_blocking=True)
        source.detach().fill_(2)
    assert value(rows[:, ::2]) == 2
    assert value(rows[:, 1::2]) == 0


def test_converting_copy_still_reads_a_pinned_source_at_execution(gpu: Device, mode: str) -> None:
    source, side = tracked(pinned(1)), torch.cuda.Stream()
    destination = torch.zeros(N, device="cuda", dtype=torch.float16)
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        source.detach().fill_(2)
    assert value(destination) == 2


def test_two_copies_from_one_pinned_source_both_read_late(gpu: Device) -> None:
    source, first, second = pinned(1), on_device(0), on_device(0)
    a, b = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(a):
        with torch.cuda.stream(a):
            first.copy_(source, non_blocking=True)
        with torch.cuda.stream(b):
            second.copy_(source, non_blocking=True)
        b.synchronize()
        source.fill_(2)
    assert (value(first), value(second)) == (2, 1)


def test_copy_from_host_to_host_is_immediate(gpu: Device) -> None:
    source, destination, side = pinned(1), pinned(0), torch.cuda.Stream()
    with torch.cuda.stream(side), gpu.hold(side):
        destination.copy_(source, non_blocking=True)
        source.fill_(2)
        assert value(destination) == 1
