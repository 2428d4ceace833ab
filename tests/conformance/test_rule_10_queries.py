"""Rule 10: queries show a device that may be far behind but makes progress."""

from __future__ import annotations

import pytest
import torch

from tests.conformance.device import Device
from tests.conformance.values import on_device, value


def test_event_query_is_false_while_the_work_is_pending(gpu: Device, mode: str) -> None:
    side = torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        event = side.record_event()
        assert not event.query()
        assert not event.query()
    event.synchronize()
    assert event.query()


def test_stream_query_is_false_while_the_work_is_pending(gpu: Device) -> None:
    a, side = on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            a.fill_(1)
        assert not side.query()
    side.synchronize()
    assert side.query()


def test_an_idle_stream_is_done(gpu: Device) -> None:
    assert torch.cuda.Stream().query()


def test_polling_an_event_ends(gpu: Device) -> None:
    a, side = on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        a.fill_(1)
        event = side.record_event()
    while not event.query():
        pass
    assert value(a) == 1


def test_polling_a_stream_ends(gpu: Device) -> None:
    a, side = on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        a.fill_(1)
    while not side.query():
        pass
    assert value(a) == 1


def test_a_true_query_means_that_the_work_is_done(gpu: Device) -> None:
    host = torch.zeros(1, pin_memory=True)
    a, side = torch.ones(1, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        host.copy_(a, non_blocking=True)
        event = side.record_event()
    while not event.query():
        pass
    assert host.item() == 1


def test_a_query_stays_true(gpu: Device) -> None:
    event = torch.cuda.current_stream().record_event()
    event.synchronize()
    assert event.query() and event.query()


def test_a_query_looks_at_the_latest_record(gpu: Device) -> None:
    event, side = torch.cuda.Event(), torch.cuda.Stream()
    event.record()
    event.synchronize()
    with gpu.hold(side):
        event.record(side)
        assert not event.query()


def timed() -> tuple[torch.cuda.Event, torch.cuda.Event]:
    return torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)


def test_elapsed_time_is_not_negative(gpu: Device) -> None:
    start, stop = timed()
    start.record()
    on_device(0).add_(1)
    stop.record()
    stop.synchronize()
    assert start.elapsed_time(stop) >= 0
    assert start.elapsed_time(start) == 0


def test_elapsed_time_needs_events_with_timing(gpu: Device) -> None:
    start, stop = torch.cuda.Event(), torch.cuda.Event()
    start.record()
    stop.record()
    stop.synchronize()
    with pytest.raises(ValueError, match=r"must be created with argument 'enable_timing=True'"):
        start.elapsed_time(stop)


def test_elapsed_time_needs_recorded_events(gpu: Device) -> None:
    start, stop = timed()
    with pytest.raises(ValueError, match="Both events must be recorded before calculating"):
        start.elapsed_time(stop)


def test_elapsed_time_needs_completed_events(gpu: Device) -> None:
    (start, stop), side = timed(), torch.cuda.Stream()
    start.record(side)
    with gpu.hold(side):
        stop.record(side)
        with pytest.raises(RuntimeError, match="Both events must be completed before"):
            start.elapsed_time(stop)
