"""Rule 4: what an event stands for when it is recorded, re-recorded, awaited, never recorded."""

from __future__ import annotations

import torch

from tests.conformance.device import Device
from tests.conformance.values import on_device, seen_from, value


def streams(n: int) -> list[torch.cuda.Stream]:
    return [torch.cuda.Stream() for _ in range(n)]


def test_wait_event_orders_consumer_after_producer(gpu: Device, mode: str) -> None:
    a, b, (side, consumer) = on_device(0), on_device(0), streams(2)
    torch.cuda.synchronize()
    with gpu.hold(side) as gate:
        with torch.cuda.stream(side):
            a.fill_(1)
            done = torch.cuda.Event()
            done.record()
        with torch.cuda.stream(consumer):
            consumer.wait_event(done)
            b.copy_(a)
        assert gpu.waits(gate, consumer.synchronize)
    assert value(b) == 1


def test_without_a_wait_the_consumer_runs_ahead(gpu: Device) -> None:
    a, b, (side, consumer) = on_device(0), on_device(5), streams(2)
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            a.fill_(1)
            torch.cuda.Event().record()
        with torch.cuda.stream(consumer):
            b.copy_(a)
        consumer.synchronize()
    assert value(b) == 0


def test_event_wait_means_the_current_stream(gpu: Device) -> None:
    a, (side, consumer) = on_device(0), streams(2)
    torch.cuda.synchronize()
    with gpu.hold(side) as gate:
        with torch.cuda.stream(side):
            a.fill_(1)
            done = torch.cuda.current_stream().record_event()
        with torch.cuda.stream(consumer):
            done.wait()
        assert gpu.waits(gate, consumer.synchronize)


def test_waiting_does_not_block_the_host(gpu: Device) -> None:
    side, consumer = streams(2)
    torch.cuda.synchronize()
    with gpu.hold(side) as gate:
        done = side.record_event()
        assert not gpu.waits(gate, lambda: consumer.wait_event(done))


def test_a_record_covers_no_later_work(gpu: Device) -> None:
    a, (side, consumer) = on_device(0), streams(2)
    torch.cuda.synchronize()
    done = torch.cuda.Event()
    with torch.cuda.stream(side):
        a.fill_(1)
        done.record()
        with gpu.hold(side) as gate:
            a.fill_(2)
            consumer.wait_event(done)
            assert not gpu.waits(gate, consumer.synchronize)
            assert not gpu.waits(gate, done.synchronize)
            assert seen_from(consumer, a) == 1


def test_a_record_covers_all_earlier_work_of_its_stream(gpu: Device) -> None:
    a, b, (side, consumer) = on_device(0), on_device(0), streams(2)
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            a.fill_(1)
            b.fill_(2)
        done = side.record_event()
        consumer.wait_event(done)
        with torch.cuda.stream(consumer):
            a.add_(b)
    assert value(a) == 3


def test_a_wait_orders_later_work_only(gpu: Device) -> None:
    a, b, (side, consumer, other) = on_device(0), on_device(0), streams(3)
    torch.cuda.synchronize()
    with gpu.hold(side):
        done = side.record_event()
        with torch.cuda.stream(consumer):
            a.fill_(1)
            before = consumer.record_event()
            consumer.wait_event(done)
            b.fill_(1)
        before.synchronize()
        assert seen_from(other, a) == 1
        assert seen_from(other, b) == 0
    assert value(b) == 1


def test_a_wait_binds_to_the_latest_record_before_it(gpu: Device) -> None:
    a, (side, consumer) = on_device(0), streams(2)
    torch.cuda.synchronize()
    event = torch.cuda.Event()
    with torch.cuda.stream(side):
        a.fill_(1)
        event.record()
    with gpu.hold(side) as gate:
        with torch.cuda.stream(side):
            a.fill_(2)
            event.record()
        consumer.wait_event(event)
        assert gpu.waits(gate, consumer.synchronize)
    assert value(a) == 2


def test_recording_again_does_not_move_a_wait_already_issued(gpu: Device) -> None:
    a, (side, consumer) = on_device(0), streams(2)
    torch.cuda.synchronize()
    event = torch.cuda.Event()
    with torch.cuda.stream(side):
        a.fill_(1)
        event.record()
    consumer.wait_event(event)
    with gpu.hold(side) as gate:
        with torch.cuda.stream(side):
            a.fill_(2)
            event.record()
        assert not gpu.waits(gate, consumer.synchronize)
        assert seen_from(consumer, a) == 1


def test_recording_again_does_not_release_a_wait_already_issued(gpu: Device) -> None:
    side, free, consumer = streams(3)
    torch.cuda.synchronize()
    event = torch.cuda.Event()
    with gpu.hold(side) as gate:
        event.record(side)
        consumer.wait_event(event)
        event.record(free)
        assert not gpu.waits(gate, event.synchronize)
        assert gpu.waits(gate, consumer.synchronize)


def test_a_wait_before_the_record_orders_nothing(gpu: Device) -> None:
    a, (side, consumer) = on_device(0), streams(2)
    torch.cuda.synchronize()
    event = torch.cuda.Event()
    consumer.wait_event(event)
    with gpu.hold(side) as gate:
        with torch.cuda.stream(side):
            a.fill_(1)
            event.record()
        assert not gpu.waits(gate, consumer.synchronize)


def test_waiting_on_a_never_recorded_event_is_a_no_op(gpu: Device) -> None:
    (side,) = streams(1)
    side.wait_event(torch.cuda.Event())
    torch.cuda.Event().wait()
    side.synchronize()


def test_a_never_recorded_event_is_done(gpu: Device) -> None:
    event = torch.cuda.Event()
    assert event.query()
    event.synchronize()


def test_synchronize_looks_at_the_latest_record(gpu: Device) -> None:
    (side,) = streams(1)
    torch.cuda.synchronize()
    event = torch.cuda.Event()
    event.record(side)
    with gpu.hold(side) as gate:
        assert not gpu.waits(gate, event.synchronize)
        event.record(side)
        assert gpu.waits(gate, event.synchronize)


def test_record_means_the_current_stream(gpu: Device) -> None:
    (side,) = streams(1)
    torch.cuda.synchronize()
    event = torch.cuda.Event()
    with gpu.hold(side) as gate:
        event.record()
        assert not gpu.waits(gate, event.synchronize)
        with torch.cuda.stream(side):
            event.record()
        assert gpu.waits(gate, event.synchronize)


def test_order_is_transitive(gpu: Device) -> None:
    a, (one, two, three) = on_device(0), streams(3)
    torch.cuda.synchronize()
    with gpu.hold(one) as gate:
        with torch.cuda.stream(one):
            a.fill_(1)
        two.wait_event(one.record_event())
        with torch.cuda.stream(two):
            a.mul_(5)
        three.wait_event(two.record_event())
        with torch.cuda.stream(three):
            a.add_(2)
        assert gpu.waits(gate, three.synchronize)
    assert value(a) == 7


def test_waiting_on_its_own_stream_is_harmless(gpu: Device) -> None:
    a, (side,) = on_device(0), streams(1)
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        a.fill_(1)
        side.wait_event(side.record_event())
        a.add_(1)
    assert value(a) == 2


def test_the_default_stream_can_record_and_wait(gpu: Device) -> None:
    a, (side,) = on_device(0), streams(1)
    default = torch.cuda.default_stream()
    torch.cuda.synchronize()
    with gpu.hold(side) as gate:
        with torch.cuda.stream(side):
            a.fill_(1)
        default.wait_event(side.record_event())
        a.add_(1)
        side.wait_event(default.record_event())
        assert gpu.waits(gate, default.synchronize)
    assert value(a) == 2


def test_an_event_outlives_its_python_object(gpu: Device) -> None:
    a, (side, consumer) = on_device(0), streams(2)
    torch.cuda.synchronize()
    with gpu.hold(side) as gate:
        with torch.cuda.stream(side):
            a.fill_(1)
        event = side.record_event()
        consumer.wait_event(event)
        del event
        assert gpu.waits(gate, consumer.synchronize)
    assert value(a) == 1
