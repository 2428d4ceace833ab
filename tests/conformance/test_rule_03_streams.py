"""Rule 3: FIFO streams, non-blocking pool streams, 32 per priority, a current one per thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

import pytest
import torch

from tests.conformance.device import Device
from tests.conformance.values import on_device, seen_from, value

T = TypeVar("T")


def in_thread(call: Callable[[], T]) -> T:
    got: list[T] = []
    thread = threading.Thread(target=lambda: got.append(call()))
    thread.start()
    thread.join()
    return got[0]


def test_a_stream_is_first_in_first_out(gpu: Device, mode: str) -> None:
    a, side = on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side), gpu.hold(side):
        for step in range(1, 6):
            a.mul_(2).add_(step)
    assert value(a) == 57


def test_work_before_a_gate_runs_and_work_behind_it_does_not(gpu: Device) -> None:
    a, side, other = on_device(0), torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        a.fill_(1)
        done = side.record_event()
        with gpu.hold(side):
            a.fill_(2)
            done.synchronize()
            assert seen_from(other, a) == 1
    assert value(a) == 2


def test_a_pool_stream_does_not_wait_for_the_default_stream(gpu: Device, mode: str) -> None:
    a, side = on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(torch.cuda.default_stream()) as gate:
        a.fill_(1)
        with torch.cuda.stream(side):
            a.fill_(2)
        assert not gpu.waits(gate, side.synchronize)
        assert seen_from(side, a) == 2
    assert value(a) == 1


def test_the_default_stream_does_not_wait_for_a_pool_stream(gpu: Device, mode: str) -> None:
    a, side = on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side) as gate:
        with torch.cuda.stream(side):
            a.fill_(1)
        a.fill_(2)
        assert not gpu.waits(gate, torch.cuda.default_stream().synchronize)
        assert seen_from(torch.cuda.default_stream(), a) == 2
    assert value(a) == 1


def test_pool_streams_do_not_wait_for_each_other(gpu: Device) -> None:
    a, one, two = on_device(0), torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(one):
        with torch.cuda.stream(one):
            a.fill_(1)
        with torch.cuda.stream(two):
            a.fill_(2)
        assert seen_from(two, a) == 2
    assert value(a) == 1


@pytest.mark.parametrize("priority", [0, -1])
def test_the_33rd_stream_is_the_first_again(gpu: Device, priority: int) -> None:
    streams = [torch.cuda.Stream(priority=priority) for _ in range(33)]
    assert len({s.cuda_stream for s in streams}) == 32
    assert streams[32].cuda_stream == streams[0].cuda_stream
    assert streams[32] == streams[0]
    assert hash(streams[32]) == hash(streams[0])


def test_the_33rd_stream_shares_the_queue_of_the_first(gpu: Device) -> None:
    streams, a = [torch.cuda.Stream() for _ in range(33)], on_device(0)
    torch.cuda.synchronize()
    with gpu.hold(streams[0]) as gate:
        with torch.cuda.stream(streams[32]):
            a.fill_(1)
        assert gpu.waits(gate, streams[32].synchronize)
    assert value(a) == 1


def test_priorities_have_pools_of_their_own(gpu: Device) -> None:
    low = {torch.cuda.Stream().cuda_stream for _ in range(32)}
    high = {torch.cuda.Stream(priority=-1).cuda_stream for _ in range(32)}
    assert len(low | high) == 64
    assert torch.cuda.Stream(priority=-1).priority == -1
    assert torch.cuda.Stream().priority == 0


def test_the_default_stream_has_handle_zero(gpu: Device) -> None:
    default = torch.cuda.default_stream()
    assert default.cuda_stream == 0
    assert torch.cuda.current_stream() == default
    assert torch.cuda.Stream() != default


def test_the_current_stream_nests(gpu: Device) -> None:
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(one):
        with torch.cuda.stream(two):
            assert torch.cuda.current_stream() == two
        assert torch.cuda.current_stream() == one
        with torch.cuda.stream(None):
            assert torch.cuda.current_stream() == one
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_the_current_stream_is_restored_after_an_error(gpu: Device) -> None:
    with pytest.raises(ZeroDivisionError), torch.cuda.stream(torch.cuda.Stream()):
        raise ZeroDivisionError
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_a_stream_is_a_context_manager(gpu: Device) -> None:
    side = torch.cuda.Stream()
    with side:
        assert torch.cuda.current_stream() == side
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_set_stream_lasts(gpu: Device) -> None:
    side, a = torch.cuda.Stream(), on_device(0)
    torch.cuda.synchronize()
    torch.cuda.set_stream(side)
    assert torch.cuda.current_stream() == side
    with gpu.hold(side) as gate:
        a.fill_(1)
        assert gpu.waits(gate, side.synchronize)


def test_the_current_stream_is_per_thread(gpu: Device) -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        assert in_thread(torch.cuda.current_stream) == torch.cuda.default_stream()
        in_thread(lambda: torch.cuda.set_stream(torch.cuda.Stream()))
        assert torch.cuda.current_stream() == side


def test_threads_enqueue_on_their_own_current_stream(gpu: Device) -> None:
    side, a = torch.cuda.Stream(), on_device(0)
    torch.cuda.synchronize()

    def work() -> None:
        with torch.cuda.stream(side):
            a.fill_(1)

    with gpu.hold(side) as gate:
        in_thread(work)
        assert not gpu.waits(gate, torch.cuda.current_stream().synchronize)
        assert gpu.waits(gate, side.synchronize)
    assert value(a) == 1


def test_stream_synchronize_waits_for_that_stream(gpu: Device) -> None:
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side) as gate:
        with torch.cuda.stream(side):
            on_device(1)
        assert not gpu.waits(gate, other.synchronize)
        assert gpu.waits(gate, side.synchronize)


def test_device_synchronize_waits_for_all_streams(gpu: Device) -> None:
    side, a = torch.cuda.Stream(), on_device(0)
    torch.cuda.synchronize()
    with gpu.hold(side) as gate:
        with torch.cuda.stream(side):
            a.fill_(1)
        assert gpu.waits(gate, torch.cuda.synchronize)


def test_an_external_stream_is_that_stream(gpu: Device) -> None:
    side, a = torch.cuda.Stream(), on_device(0)
    outside = torch.cuda.ExternalStream(side.cuda_stream)
    torch.cuda.synchronize()
    with gpu.hold(side) as gate:
        with torch.cuda.stream(outside):
            a.fill_(1)
        assert gpu.waits(gate, outside.synchronize)
    assert value(a) == 1
