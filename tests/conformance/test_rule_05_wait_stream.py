"""Rule 5: ``wait_stream`` is a snapshot of the awaited stream."""

from __future__ import annotations

import torch

from tests.conformance.device import Device
from tests.conformance.values import on_device, seen_from, value


def test_wait_stream_covers_earlier_work(gpu: Device, mode: str) -> None:
    a, b = on_device(0), on_device(0)
    side, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side) as gate:
        with torch.cuda.stream(side):
            a.fill_(1)
        consumer.wait_stream(side)
        with torch.cuda.stream(consumer):
            b.copy_(a)
        assert gpu.waits(gate, consumer.synchronize)
    assert value(b) == 1


def test_wait_stream_does_not_cover_later_work(gpu: Device, mode: str) -> None:
    a, b = on_device(0), on_device(0)
    side, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    consumer.wait_stream(side)
    with gpu.hold(side) as gate:
        with torch.cuda.stream(side):
            a.fill_(1)
        with torch.cuda.stream(consumer):
            b.copy_(a)
        assert not gpu.waits(gate, consumer.synchronize)
    assert value(b) == 0


def test_wait_stream_orders_later_work_of_the_waiter_only(gpu: Device) -> None:
    a, b = on_device(0), on_device(0)
    side, consumer, other = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(consumer):
            a.fill_(1)
            before = consumer.record_event()
            consumer.wait_stream(side)
            b.fill_(1)
        before.synchronize()
        assert seen_from(other, a) == 1
        assert seen_from(other, b) == 0


def test_wait_stream_does_not_block_the_host(gpu: Device) -> None:
    side, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side) as gate:
        assert not gpu.waits(gate, lambda: consumer.wait_stream(side))


def test_wait_stream_has_one_direction(gpu: Device) -> None:
    side, consumer = torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(consumer) as gate:
        consumer.wait_stream(side)
        assert not gpu.waits(gate, side.synchronize)
        assert gpu.waits(gate, consumer.synchronize)


def test_wait_stream_of_the_default_stream(gpu: Device) -> None:
    a, side = on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(torch.cuda.default_stream()) as gate:
        a.fill_(1)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a.add_(1)
        assert gpu.waits(gate, side.synchronize)
    assert value(a) == 2


def test_wait_stream_of_itself_is_harmless(gpu: Device) -> None:
    a, side = on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        a.fill_(1)
        side.wait_stream(side)
        a.add_(1)
    assert value(a) == 2


def test_wait_stream_is_transitive(gpu: Device) -> None:
    a = on_device(0)
    one, two, three = torch.cuda.Stream(), torch.cuda.Stream(), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(one) as gate:
        with torch.cuda.stream(one):
            a.fill_(1)
        two.wait_stream(one)
        three.wait_stream(two)
        with torch.cuda.stream(three):
            a.add_(1)
        assert gpu.waits(gate, three.synchronize)
    assert value(a) == 2
