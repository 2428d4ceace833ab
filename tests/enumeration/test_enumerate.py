"""The enumerator on programs whose outcomes can be counted by hand."""

from __future__ import annotations

import pytest

from .enumerate import GARBAGE, TooLarge, outcomes
from .expect import Expected
from .generate import generate
from .program import (
    Allocate,
    Buffer,
    Copy,
    Fetch,
    Free,
    HostRead,
    HostWrite,
    Kernel,
    Part,
    Program,
    Query,
    Record,
    RecordStream,
    Repeat,
    Statement,
    SyncDevice,
    SyncEvent,
    SyncStream,
    Wait,
    WaitStream,
    edges,
    numbered,
    unrolled,
)

D, P, H, T = (Part(name, 0, 1) for name in ("d", "p", "h", "t"))
DEVICE, PINNED, PAGEABLE = Buffer("d", "device"), Buffer("p", "pinned"), Buffer("h", "pageable")


def program(*body: Statement, buffers: tuple[Buffer, ...] = (DEVICE,), pieces: int = 1) -> Program:
    return Program(pieces, "int64", 3, 2, buffers, body)


def add(stream: int, k: int = 1, part: Part = D) -> Kernel:
    return Kernel(stream, "add", part, k)


def fill(stream: int, k: int, part: Part = D) -> Kernel:
    return Kernel(stream, "fill", part, k)


def last(program: Program, *dropped: int, whole: bool = False) -> set[int]:
    """The values that the last output may have."""
    return {outcome[-1][0] for outcome in outcomes(program, frozenset(dropped), whole)}


def test_unordered_adds_lose_updates() -> None:
    both = program(add(1), add(2), WaitStream(0, 1), WaitStream(0, 2))
    assert last(both) == {1, 2}
    assert last(both, whole=True) == {2}
    assert last(both, 3) == {1, 2}  # stream 1 is joined


def test_a_read_without_a_join_sees_any_prefix() -> None:
    assert last(program(add(1), add(1), add(1))) == {0, 1, 2, 3}
    assert last(program(add(1), add(1), add(1), SyncStream(1))) == {3}


def test_pieces_are_written_one_by_one() -> None:
    both = Part("d", 0, 2)
    torn = program(fill(1, 7, both), pieces=2)
    assert {outcome[-1] for outcome in outcomes(torn)} == {(0, 0), (7, 0), (0, 7), (7, 7)}
    assert {outcome[-1] for outcome in outcomes(torn, whole=True)} == {(0, 0), (7, 7)}
    half = program(fill(1, 7, Part("d", 1, 2)), pieces=2)
    assert {outcome[-1] for outcome in outcomes(half)} == {(0, 0), (0, 7)}


def test_a_wait_binds_to_the_latest_record_before_it() -> None:
    early = program(add(1), Record(0, 1), Wait(0, 0), add(1))
    assert last(early) == {1, 2}
    moved = program(add(1), Record(0, 1), Wait(0, 0), add(1), Record(0, 1))
    assert last(moved) == {1, 2}
    unrecorded = program(add(1), Wait(0, 0))
    assert last(unrecorded) == {0, 1}


def test_a_dropped_record_leaves_the_older_one() -> None:
    twice = program(add(1), Record(0, 1), add(1), Record(0, 1), Wait(0, 0))
    assert last(twice) == {2}
    assert last(twice, 3) == {1, 2}
    assert last(twice, 1) == {2}
    assert last(twice, 1, 3) == {0, 1, 2}


def test_waits_chain() -> None:
    chain = program(add(1), WaitStream(2, 1), WaitStream(0, 2))
    assert last(chain) == {1}
    assert last(chain, 1) == last(chain, 2) == {0, 1}


@pytest.mark.parametrize("sync", [SyncEvent(0), SyncStream(1), SyncDevice(), Query(0, "poll")])
def test_host_reads_after_a_sync(sync: Statement) -> None:
    read = program(Kernel(1, "fill", D, 5), Copy(1, P, D, True), Record(0, 1), sync,
                   HostRead(P), buffers=(DEVICE, PINNED))
    assert {outcome[0][0] for outcome in outcomes(read)} == {5}


def test_host_reads_early_and_rewrites_a_live_source() -> None:
    early = program(fill(1, 5), Copy(1, P, D, True), HostRead(P), buffers=(DEVICE, PINNED))
    assert {outcome[0][0] for outcome in outcomes(early)} == {0, 5}
    for part, buffer, values in (P, PINNED, {0, 9}), (H, PAGEABLE, {0}):
        rewritten = program(Copy(0, D, part, True), HostWrite(part, 9), buffers=(DEVICE, buffer))
        assert last(rewritten) == values


def test_blocking_copies_wait_for_their_own_stream() -> None:
    host = (DEVICE, PINNED)
    assert last(program(Copy(0, D, P, False), HostWrite(P, 9), buffers=host)) == {0}
    joined = program(fill(1, 5), Fetch(1, D), buffers=host)
    assert last(joined) == {5}
    other = program(fill(1, 5), Copy(0, P, Part("c", 0, 1), False),
                    buffers=(*host, Buffer("c", "device")))
    assert {outcome[-2][0] for outcome in outcomes(other)} == {0, 5}


def reuse(*extra: Statement) -> Program:
    """Stream 1 reads a buffer of stream 0 that is freed and handed out again."""
    return program(
        Allocate("t", 0), fill(0, 5, T), WaitStream(1, 0), Kernel(1, "copy", D, 0, T), *extra,
        Free("t"), Allocate("u", 0), fill(0, 8, Part("u", 0, 1)), SyncDevice(),
    )


def test_a_freed_block_is_taken_at_once() -> None:
    def seen(program: Program, *dropped: int) -> set[int]:
        return {outcome[-2][0] for outcome in outcomes(program, frozenset(dropped))}

    assert seen(reuse()) == {5, 8}
    assert seen(reuse(RecordStream("t", 1))) == {5}
    assert seen(reuse(RecordStream("t", 1)), 4) == {5, 8}
    assert seen(reuse(RecordStream("t", 0))) == {5, 8}
    assert seen(reuse(WaitStream(0, 1))) == {5}


def test_memory_keeps_its_bytes_or_is_fresh() -> None:
    def unwritten(*marks: Statement) -> set[int]:
        return last(program(Allocate("t", 0), fill(0, 5, T), *marks, Free("t"), Allocate("u", 0)))

    assert unwritten() == {5}
    assert unwritten(RecordStream("t", 1)) == {5, 3 * GARBAGE}  # the marker may be late


def test_queries_answer_as_a_device_that_may_be_behind() -> None:
    asked = program(add(1), Record(0, 1), Query(0, "ask"), Wait(0, 0))
    assert {outcome[0][0] for outcome in outcomes(asked)} == {0, 1}
    known = program(add(1), Record(0, 1), SyncEvent(0), Query(0, "ask"))
    assert {outcome[0][0] for outcome in outcomes(known)} == {1}
    assert {outcome[0][0] for outcome in outcomes(program(Query(0, "ask")))} == {1}
    late = program(add(1), Record(0, 1), Query(0, "unless"))
    assert last(late) == {1}
    assert last(late, 2) == {0, 1}


def test_a_loop_is_one_site_with_instances() -> None:
    loop = program(Repeat(2, (add(1), WaitStream(0, 1), add(0, 2))))
    assert len(list(numbered(loop))) == 3 and len(list(unrolled(loop))) == 6
    assert edges(loop) == [1]
    assert last(loop) == {4, 5, 6}  # the second add to stream 1 races with the first on stream 0


def test_verdicts() -> None:
    covered = Expected(program(add(1), WaitStream(0, 1), SyncDevice(), add(0), WaitStream(2, 0)))
    assert covered.green() == "proved"
    assert covered.masks() == [frozenset((1, 2))]
    assert covered.edges() == {1: "masked", 2: "masked", 4: "redundant"}
    racy = Expected(program(add(1), Record(0, 1), SyncEvent(0), add(1)))
    assert racy.green() == "refuted"
    assert racy.edges() == {1: "load-bearing", 2: "load-bearing"}


@pytest.mark.parametrize("seed", range(60))
def test_the_reduction_loses_nothing(seed: int) -> None:
    drawn = generate(seed)
    for whole in (True, False):
        for dropped in (frozenset[int](), frozenset(edges(drawn)[:1])):
            try:
                every = outcomes(drawn, dropped, whole, reduce=False, limit=4000)
            except TooLarge:
                continue
            assert outcomes(drawn, dropped, whole) == every
