"""A kernel in two parts: what others see of it, what becomes of it, and that it is made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import pytest
import torch

from redgreen.schedule import SERIAL, Order, Schedule, Torn, begin
from redgreen.trace import Trace
from redgreen.virtual import VirtualGPU
from tests.child import in_child

N = 8  # float32: four pieces of eight bytes
How = Literal["split", "stale"]


def around(step: str, inner: str, how: How) -> Schedule:
    """``inner`` executes between the two parts of ``step``."""
    orders = (Order(begin(step), inner), Order(inner, step))
    return Schedule(orders=orders, torn=(Torn(step, how),))


def run(program: Callable[[], torch.Tensor], schedule: Schedule) -> tuple[list[float], Trace]:
    with VirtualGPU(schedule) as gpu:
        result: list[float] = program().cpu().tolist()
        record = gpu.finish()
    assert not record.broken
    return result, record.trace


def unordered(first: Callable[[torch.Tensor], object], second: Callable[[torch.Tensor], object]
              ) -> Callable[[], torch.Tensor]:  # fmt: skip
    """Two operators on one buffer, on two streams."""

    def program() -> torch.Tensor:
        side, x = torch.cuda.Stream(), torch.zeros(N, device="cuda")
        torch.cuda.synchronize()
        first(x)
        with torch.cuda.stream(side):
            second(x)
        torch.cuda.synchronize()
        return x

    return program


def add(x: torch.Tensor) -> None:
    x.add_(1)


def fill(x: torch.Tensor) -> None:
    x.fill_(7)


def running_sum(x: torch.Tensor) -> None:
    x.add_(1).cumsum_(0)


ADD, AGAIN = "add:aten.add_.Tensor#1", "add:aten.add_.Tensor#2"
FILL, SUM = "fill:aten.fill_.Scalar#1", "running_sum:aten.cumsum_.default#1"
SPLIT = [7.0, 7.0, 8.0, 8.0] * 2  # the first, third, ... piece before the fill, the others after


@pytest.mark.parametrize(
    ("first", "second", "schedule", "expected"),
    [
        (add, add, SERIAL, [2.0] * N),
        (add, add, around(ADD, AGAIN, "stale"), [1.0] * N),
        (add, add, around(AGAIN, ADD, "stale"), [1.0] * N),
        (add, add, around(ADD, AGAIN, "split"), [2.0] * N),
        (add, fill, SERIAL, [7.0] * N),
        (add, fill, around(ADD, FILL, "stale"), [1.0] * N),
        (add, fill, around(ADD, FILL, "split"), SPLIT),
        (fill, add, around(ADD, FILL, "split"), SPLIT),
        (fill, add, around(FILL, ADD, "split"), [8.0, 8.0, 7.0, 7.0] * 2),
        # What goes on from its own half has another rest: it reads everything first.
        (running_sum, fill, around(SUM, FILL, "split"), [float(i + 1) for i in range(N)]),
    ],
)
def test_what_two_parts_leave(
    first: Callable[[torch.Tensor], object], second: Callable[[torch.Tensor], object],
    schedule: Schedule, expected: list[float],
) -> None:  # fmt: skip
    result, trace = in_child(lambda: run(unordered(first, second), schedule))
    assert result == expected
    assert sorted(trace.execution) == list(range(len(trace.steps)))  # each step once


def test_a_copy_sees_a_write_of_the_host_half_done() -> None:
    """The host writes at once; the copy reads half before and half after."""

    def program() -> torch.Tensor:
        host, x = torch.zeros(N, pin_memory=True), torch.empty(N, device="cuda")
        x.copy_(host, non_blocking=True)
        host.fill_(1)
        torch.cuda.synchronize()
        return x

    copy, write = "program:aten.copy_#1", "program:host aten.fill_.Scalar#1"
    result, _ = in_child(lambda: run(program, around(copy, write, "split")))
    assert result == [0.0, 0.0, 1.0, 1.0] * 2


def test_strided_output_is_cut_in_place() -> None:
    """Pieces are cut by address, and what lies between the columns stays."""

    def program() -> torch.Tensor:
        side, x = torch.cuda.Stream(), torch.zeros(4, 4, device="cuda")
        torch.cuda.synchronize()
        fill(x[:, 1:3])
        with torch.cuda.stream(side):
            add(x)
        torch.cuda.synchronize()
        return x

    result, _ = in_child(lambda: run(program, around(FILL, ADD, "split")))
    assert result == [[1.0, 8.0, 7.0, 1.0]] * 4
