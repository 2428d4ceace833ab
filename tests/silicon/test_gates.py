"""Gates, orders and the watchdog on a device that only knows streams and words."""

from __future__ import annotations

import pytest
import torch

from redgreen.faults import Fault
from redgreen.schedule import LAZY, SERIAL, Order, Schedule
from redgreen.silicon.gates import Gates
from redgreen.silicon.runner import realizable
from redgreen.silicon.watchdog import Stuck
from tests.silicon import source
from tests.silicon.fake import FakeDriver, recording, run

COPY = "_poisoned_source:aten.copy_#1"
FILL = "_poisoned_source:host aten.fill_.Scalar#1"


def test_a_gate_holds_what_is_behind_it_and_nothing_else() -> None:
    driver = FakeDriver()
    gates = Gates(driver)
    held, other = gates.close(1), gates.close(2)
    gates.mark(held)
    gates.mark(other)
    gates.pass_through(other)
    assert not gates.done(held)
    gates.pass_through(held)
    assert gates.done(held)


def test_words_are_used_again() -> None:
    gates = Gates(FakeDriver(), size=2)
    for _ in range(5):
        gate = gates.close(1)
        gates.mark(gate)
        gates.pass_through(gate)
    gates.close(1)
    gates.close(1)
    with pytest.raises(RuntimeError, match="more than 2 device steps"):
        gates.close(1)


def test_the_gates_of_a_graph_are_closed_again() -> None:
    gates = Gates(FakeDriver())
    gate = gates.close(1, captured=True)
    gates.mark(gate)
    gates.pass_through(gate)
    gates.reset([gate])
    assert not gates.done(gate)


def test_an_order_is_kept_and_seen_to_be_kept() -> None:
    order = Order(FILL, COPY)
    record = run(source.for_fake("poisoned_source"), Schedule(orders=(order,)))
    labels = [record.trace.steps[i].label for i in record.trace.execution]
    assert labels.index(FILL) < labels.index(COPY)
    assert record.held == (order,)
    assert record.broken == () and record.trace.refusals == []


def test_an_order_that_a_sync_contradicts_is_broken() -> None:
    order = Order(FILL, COPY)
    record = run(source.for_fake("poisoned_source_fixed"), Schedule(orders=(order,)))
    assert record.broken == (order,)
    assert record.held == ()


def test_a_fault_is_the_call_not_made() -> None:
    serial = run(source.for_fake("poisoned_source_fixed"))
    edge = next(e for e in serial.trace.edges if e.kind == "event.synchronize")
    order = Order(FILL, COPY)
    fault = Fault("drop", edge)
    record = run(source.for_fake("poisoned_source_fixed"), Schedule(orders=(order,)),
                 frozenset((fault,)))
    assert record.hits == {fault: 1}
    assert record.held == (order,)


@pytest.mark.parametrize("name", source.ALL)
@pytest.mark.parametrize("schedule", [LAZY, *(Schedule("random", seed=i) for i in range(3)),
                                      Schedule("last", stream="stream 1")], ids=str)
def test_no_schedule_leaves_the_host_behind_a_closed_gate(name: str, schedule: Schedule) -> None:
    """The fake's own syncs fail if anything in front of them is held."""
    record = run(source.for_fake(name), schedule)
    assert record.trace.refusals == []
    assert sorted(record.trace.execution) == list(range(len(record.trace.steps)))


def test_the_watchdog_opens_the_gates_of_a_run_in_which_nothing_happens() -> None:
    with pytest.raises(Stuck, match="all gates were opened"), recording(LAZY, patience=0.4) as r:
        torch.zeros(4, device="meta")
        r.session.calling("a hidden wait", lambda: _wait(r.session.driver))


def _wait(driver: FakeDriver) -> None:
    while not driver.words.idle():  # as CUDA would: until the stream is through
        pass


def test_a_run_that_the_watchdog_ended_is_refused() -> None:
    with recording(LAZY, patience=0.4) as r:
        torch.zeros(4, device="meta")
        with pytest.raises(Stuck):
            r.session.calling("a hidden wait", lambda: _wait(r.session.driver))
        assert "all gates were opened" in r.finish().trace.refusals[0]


def test_torn_steps_are_refused() -> None:
    from redgreen.schedule import Torn

    record = run(source.for_fake("early_read"), Schedule(torn=(Torn("x", "split"),)))
    assert "half way" in record.trace.refusals[0]


def test_to_hold_a_record_is_to_hold_what_is_in_front_of_it() -> None:
    trace = run(source.for_fake("no_record_stream_fixed")).trace
    marker = next(s.label for s in trace.steps if s.op == "free marker")
    order = Order("reuse#1", marker)
    forced, meant = realizable(Schedule(orders=(order,)), trace)
    assert forced.orders == (Order("reuse#1", "_no_record_stream:aten.mul.Tensor#1"),)
    assert list(meant.values()) == [order]
    assert realizable(SERIAL, None) == (SERIAL, {})
