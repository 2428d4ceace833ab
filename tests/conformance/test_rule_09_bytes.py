"""Rule 9: fresh memory holds a pattern that differs by generation; nothing else is invented."""

from __future__ import annotations

import math

import pytest
import torch

from tests.conformance.device import Device
from tests.conformance.values import N, on_device, pinned, value


def fresh(n: int = N, dtype: torch.dtype = torch.uint8) -> bytes:
    """The bytes of device memory that nothing ever wrote."""
    return torch.empty(n, device="cuda", dtype=dtype).cpu().view(torch.uint8).numpy().tobytes()


def only_virtual(gpu: Device) -> None:
    if not gpu.virtual:
        pytest.skip("what fresh memory holds is not specified on a real GPU")


def test_fresh_memory_holds_a_pattern(gpu: Device) -> None:
    only_virtual(gpu)
    data = fresh()
    assert data.strip(b"\x00") and data.strip(b"\xff")


def test_the_pattern_is_not_only_nan(gpu: Device) -> None:
    only_virtual(gpu)
    numbers = torch.empty(N, device="cuda").cpu().tolist()
    assert not all(math.isnan(x) for x in numbers)


def test_the_pattern_differs_by_generation(gpu: Device) -> None:
    only_virtual(gpu)
    kept = [torch.empty(N, device="cuda") for _ in range(8)]
    assert len({t.cpu().numpy().tobytes() for t in kept}) == 8


def test_the_pattern_is_the_same_in_every_run() -> None:  # of the virtual GPU
    from tests.child import in_child
    from tests.conformance.device import entered

    def run() -> bytes:
        with entered("virtual"):
            return fresh()

    assert in_child(run) == in_child(run)


def test_reused_memory_holds_its_old_bytes(gpu: Device, mode: str) -> None:
    a = on_device(3, 5 * N)
    address = a.data_ptr()
    del a
    b = torch.empty(5 * N, device="cuda")
    assert b.data_ptr() == address
    assert value(b) == 3


def test_reused_memory_shows_the_late_write_of_its_former_life(gpu: Device) -> None:
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        a = on_device(3, 5 * N)
        side.synchronize()
        with gpu.hold(side):
            a.fill_(4)
            del a
            b = torch.empty(5 * N, device="cuda")
            with torch.cuda.stream(other):
                assert value(b.cpu()) == 3
    assert value(b) == 4


def test_a_pinned_destination_keeps_its_bytes_until_the_copy(gpu: Device, mode: str) -> None:
    source, destination, side = on_device(1), pinned(5), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        assert value(destination) == 5


@pytest.mark.own_process
def test_empty_like_new_empty_and_empty_strided_write_nothing(gpu: Device, mode: str) -> None:
    for make in (
        torch.empty_like,
        lambda t: t.new_empty(t.shape),
        lambda t: torch.empty_strided(t.shape, t.stride(), device="cuda"),
    ):
        keep = on_device(6, 7 * N)[: 5 * N]
        a = on_device(3, 5 * N)
        address = a.data_ptr()
        del a
        b = make(keep)
        assert b.data_ptr() == address
        assert value(b) == 3
        del b, keep
