"""Disagreements that random programs found, made small."""

from __future__ import annotations

from .compare import compare, explain
from .program import (
    Buffer,
    Copy,
    Kernel,
    Part,
    Program,
    Query,
    Record,
    Statement,
    SyncDevice,
    SyncEvent,
    SyncStream,
    Wait,
    WaitStream,
)

PINNED = Buffer("p0", "pinned")
ALL = 2  # pieces


def program(*body: Statement, buffers: tuple[Buffer, ...]) -> Program:
    return Program(ALL, "int64", 3, 1, buffers, body)


def part(name: str) -> Part:
    return Part(name, 0, ALL)


def check(program: Program, name: str) -> None:
    found = compare(program, name)
    assert not found.disagreements and not found.limits, explain(found)


def test_an_answer_is_true() -> None:
    check(program(
        Copy(1, part("p0"), part("d0"), True), Record(0, 1),
        Query(0, "unless"), Query(0, "ask"),
        buffers=(Buffer("d0", "device", 3), PINNED),
    ), "answer")


def test_a_racy_program_has_torn_outputs_too() -> None:
    """Nobody waits for the last kernel, so the output may be half of it with or without the wait:
    a copy of what is there already needs none."""
    check(program(
        Copy(0, part("d0"), part("h0"), True), Record(0, 0), Wait(0, 1),
        Kernel(1, "add", part("d0"), 4),
        buffers=(Buffer("d0", "device", 2, 1), Buffer("h0", "pageable", 2)),
    ), "torn")


def test_a_racy_program_has_torn_outputs_of_its_readers_too() -> None:
    check(program(
        Kernel(0, "fill", part("d1"), 5), SyncDevice(), Kernel(1, "mul", part("d0"), 3, part("d1")),
        buffers=(Buffer("d0", "device", 0, 1), Buffer("d1", "device")),
    ), "torn_reader")


def test_a_copy_may_last_longer_than_two_others() -> None:
    """Without two edges, the first copy reads before the fill and writes after the second copy."""
    check(program(
        Kernel(0, "fill", part("d0"), 2), SyncDevice(), Copy(1, part("p0"), part("d0"), True),
        Record(0, 1), Wait(0, 0), Copy(0, part("p0"), part("d0"), True), SyncStream(0),
        buffers=(Buffer("d0", "device", 3, 1), PINNED),
    ), "longer")


def test_a_program_is_refuted_if_a_copy_lasts_long() -> None:
    """The copy on stream 1 may read before the add and write after the other copy."""
    check(program(
        Kernel(0, "add", part("d0"), 2), Copy(1, part("p0"), part("d0"), True),
        Copy(0, part("p0"), part("d0"), True), Record(0, 0), SyncEvent(0),
        buffers=(Buffer("d0", "device", 0, 1), PINNED),
    ), "refuted")


def test_a_kernel_may_last_across_a_lost_order_and_a_race() -> None:
    """Without the wait, the gather reads before the first fill and writes after the copy, which it
    races with anyhow."""
    lasting = program(
        Kernel(2, "fill", part("d1"), 8), WaitStream(1, 2),
        Kernel(1, "gather", part("d0"), 0, part("d1")),
        Kernel(2, "fill", part("d1"), 3), Kernel(2, "copy", part("d0"), 0, part("d1")),
        Record(0, 2), Wait(0, 0),
        buffers=(Buffer("d0", "device", 2, 1), Buffer("d1", "device", 1, 2)),
    )
    check(lasting, "lasting")


def test_two_adds_may_get_lost() -> None:
    """Without the sync, the first add reads before both others and writes after them."""
    check(program(
        Kernel(1, "add", part("d0"), 5), Kernel(0, "add", part("d0"), 3), SyncStream(0),
        Kernel(1, "add", part("d0"), 3), Record(0, 1), Wait(0, 0),
        buffers=(Buffer("d0", "device", 1),),
    ), "two_adds")
