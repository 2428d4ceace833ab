"""Property-based tests of pipelines: what fails shrinks to the fewest steps and departures."""

from __future__ import annotations

import pytest
import torch
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st

import redgreen
from redgreen.schedule import LAZY, SERIAL, Order, Schedule
from redgreen.strategies import from_token, priorities, schedules
from redgreen.token import NotApplicable

RELAXED = settings(
    max_examples=60, deadline=None, database=None, derandomize=True,
    suppress_health_check=list(HealthCheck),
)  # fmt: skip


def ring(uploads: int, depth: int, waits: bool) -> torch.Tensor:
    """Uploads through a ring of pinned buffers; the host may refill one that is still read."""
    side, out = torch.cuda.Stream(), torch.zeros(uploads, 4, device="cuda")
    slots = [torch.zeros(4, pin_memory=True) for _ in range(depth)]
    events = [torch.cuda.Event() for _ in range(depth)]
    side.wait_stream(torch.cuda.current_stream())
    for i in range(uploads):
        slot = i % depth
        if waits:
            events[slot].synchronize()
        slots[slot].fill_(i + 1)
        with torch.cuda.stream(side):
            out[i].copy_(slots[slot], non_blocking=True)
            events[slot].record()
    torch.cuda.current_stream().wait_stream(side)
    return out


@settings(parent=RELAXED, max_examples=10)
@given(uploads=st.integers(1, 6), depth=st.integers(1, 3), schedule=schedules(steps=12))
def test_a_right_pipeline_is_right_on_every_schedule(
    uploads: int, depth: int, schedule: Schedule
) -> None:
    redgreen.check(ring, uploads, depth, True, schedule=schedule)


def fails(uploads: int, depth: int, schedule: Schedule) -> str:
    try:
        redgreen.check(ring, uploads, depth, False, schedule=schedule)
    except AssertionError as error:
        return str(error)
    return ""


def test_a_wrong_one_shrinks_to_one_late_copy() -> None:
    uploads, depth, schedule = find(
        st.tuples(st.integers(1, 6), st.integers(1, 3), schedules(steps=12)),
        lambda case: fails(*case) != "",
        settings=RELAXED,
    )
    assert (uploads, depth) == (2, 1)
    assert schedule == Schedule("late", late=(0,))  # the zeroing, which the copies wait for
    said = fails(uploads, depth, schedule)
    assert "output (tensor float32 (2, 4)): byte" in said
    assert from_token(said.partition("token:")[2]) == schedule


def test_late_steps_run_when_they_are_waited_for() -> None:
    assert fails(2, 1, SERIAL) == ""
    assert fails(2, 1, Schedule("late", late=(0,))) != ""  # the stream's order keeps the copy back
    assert fails(2, 1, Schedule("late", late=(2,))) == ""  # nothing is written after the last copy
    assert fails(2, 1, LAZY) != ""


@settings(parent=RELAXED, max_examples=10)
@given(uploads=st.integers(1, 6), schedule=priorities(steps=24))
def test_priorities_are_legal(uploads: int, schedule: Schedule) -> None:
    redgreen.check(ring, uploads, 2, True, schedule=schedule)


def test_priorities_decide_who_is_late() -> None:
    """About half of the draws put the copies' stream behind the host; a change alone does too."""
    drawn = [Schedule("pct", seed=seed) for seed in range(12)]
    late = [schedule for schedule in drawn if fails(2, 1, schedule)]
    assert 2 < len(late) < 10
    eager = next(schedule for schedule in drawn if schedule not in late)
    changed = [Schedule("pct", seed=eager.seed, late=(at,)) for at in range(12)]
    assert any(fails(2, 1, schedule) for schedule in changed)


def test_the_reference_is_what_is_compared_with() -> None:
    def right(uploads: int) -> torch.Tensor:
        return torch.arange(1.0, uploads + 1)[:, None].expand(uploads, 4).contiguous()

    def mine(uploads: int) -> torch.Tensor:
        return ring(uploads, 2, True)

    redgreen.check(mine, 3, reference=right, schedule=LAZY)
    with pytest.raises(AssertionError, match="output"):
        redgreen.check(mine, 3, reference=lambda n: right(n) + 1)


def test_bad_input() -> None:
    with pytest.raises(NotApplicable, match="not a redgreen token"):
        from_token("hello")
    with pytest.raises(ValueError, match="at least 1"):
        schedules(steps=0)
    edge = redgreen.prove(ring, 2, 1, True).edges[0]
    with pytest.raises(redgreen.UsageError, match="without one of its edges"):
        from_token(str(edge.witness))
    elsewhere = Schedule(orders=(Order("nowhere:add#1", "ring:aten.copy_#1"),))
    with pytest.raises(redgreen.UsageError, match="not of this program"):
        redgreen.check(ring, 2, 1, True, schedule=elsewhere)
    with pytest.raises(redgreen.SubjectRaised, match="ZeroDivisionError"):
        redgreen.check(lambda: 1 // 0)
