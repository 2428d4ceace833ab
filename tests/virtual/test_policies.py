"""What `record_stream` is needed for depends on how memory is handed out."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch

import redgreen
from redgreen.backend import ALLOCATORS

MIB = 1 << 20
# The same code of ours serves expandable segments in these.
SOME = [pytest.param(name, marks=[pytest.mark.slow] if name == "expandable" else [])
        for name in ALLOCATORS]  # fmt: skip
Program = Callable[[], torch.Tensor]


def verdicts(program: Program, allocator: str) -> tuple[str, str]:
    """Of the program, and of its record_stream where it has one."""
    proof = redgreen.prove(program, allocator=allocator)
    (edge,) = [e.verdict for e in proof.edges if e.kind == "record_stream"] or [""]
    return proof.green.verdict, edge


def lent(record: bool, take: Callable[[torch.Tensor], None], blocks: int = 1,
         size: int = 512) -> Program:
    """A side stream reads memory of the default stream, which is freed and then taken."""

    def program() -> torch.Tensor:
        side, out = torch.cuda.Stream(), torch.zeros(8, dtype=torch.uint8, device="cuda")
        lent = [torch.empty(size, dtype=torch.uint8, device="cuda") for _ in range(blocks)]
        for each in lent:
            each[:8].fill_(3)
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            for each in lent:
                out.add_(each[:8])
        if record:
            for each in lent:
                each.record_stream(side)
        del each, lent
        take(out)
        torch.cuda.current_stream().wait_stream(side)
        return out

    return program


def taking(size: int) -> Callable[[torch.Tensor], None]:
    """The default stream allocates again and writes."""

    def take(_: torch.Tensor) -> None:
        torch.empty(size, dtype=torch.uint8, device="cuda")[:8].fill_(7)

    return take


def on_another_stream(follows: bool) -> Callable[[torch.Tensor], None]:
    """A third stream allocates and writes, after the free or whenever it likes."""

    def take(_: torch.Tensor) -> None:
        third = torch.cuda.Stream()
        if follows:
            third.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(third):
            torch.empty(512, dtype=torch.uint8, device="cuda")[:8].fill_(7)

    return take


@pytest.mark.parametrize("allocator", SOME)
def test_the_next_allocation_of_the_stream_takes_the_block(allocator: str) -> None:
    assert verdicts(lent(True, taking(512)), allocator) == ("proved", "load-bearing")
    assert verdicts(lent(False, taking(512)), allocator) == ("refuted", "")


@pytest.mark.parametrize(("allocator", "verdict"), [
    ("native", "redundant"),  # a segment of its own, 12 MiB
    ("expandable", "load-bearing"),  # takes the end of the segment, and maps more
    ("stream-ordered", "redundant"),
])  # fmt: skip
def test_a_larger_request(allocator: str, verdict: str) -> None:
    assert verdicts(lent(True, taking(14 * MIB), 1, 12 * MIB), allocator) == ("proved", verdict)
    green = "refuted" if verdict == "load-bearing" else "proved"
    assert verdicts(lent(False, taking(14 * MIB), 1, 12 * MIB), allocator) == (green, "")


@pytest.mark.parametrize(("allocator", "verdict"), [
    ("native", "redundant"), ("expandable", "load-bearing"), ("stream-ordered", "load-bearing"),
])  # fmt: skip
def test_neighbours_that_are_freed_take_a_request_of_both(allocator: str, verdict: str) -> None:
    assert verdicts(lent(True, taking(24 * MIB), 2, 12 * MIB), allocator) == ("proved", verdict)


def test_in_one_segment_neighbours_merge_natively_as_well() -> None:
    program = lent(True, taking(1024), 2)
    assert verdicts(program, "native") == ("proved", "load-bearing")


@pytest.mark.parametrize("follows", [True, pytest.param(False, marks=pytest.mark.slow)])
@pytest.mark.parametrize(("allocator", "verdict"), [
    ("native", "redundant"), ("expandable", "redundant"), ("stream-ordered", "load-bearing"),
])  # fmt: skip
def test_another_stream_takes_the_block(allocator: str, verdict: str, follows: bool) -> None:
    """Once it comes after the free, or the device has passed that; only cudaMallocAsync does so."""
    take = on_another_stream(follows)
    assert verdicts(lent(True, take), allocator) == ("proved", verdict)
    green = "refuted" if verdict == "load-bearing" else "proved"
    assert verdicts(lent(False, take), allocator) == (green, "")


def test_addresses_without_memory_part_what_is_free() -> None:
    """12 MiB free, 20 unmapped, 2 free, 34 marked. 21 MiB are the first two, unless the mark is
    done: then the last two are free memory, and large enough.
    """

    def program() -> torch.Tensor:
        side = torch.cuda.Stream()
        parts: list[torch.Tensor | None] = [
            torch.empty(size * MIB, dtype=torch.uint8, device="cuda")
            for size in (8, 12, 20, 2, 34, 10)
        ]
        low, high = parts[1], parts[4]
        assert low is not None and high is not None
        low[3 * MIB : 3 * MIB + 8].fill_(1)
        high[1 * MIB : 1 * MIB + 8].fill_(7)
        torch.cuda.synchronize()
        low = parts[1] = parts[2] = None
        torch.cuda.empty_cache()
        parts[3] = None
        with torch.cuda.stream(side):
            high[:8].sum()
        high.record_stream(side)
        high = parts[4] = None
        place = torch.empty(21 * MIB, dtype=torch.uint8, device="cuda")
        return place[3 * MIB : 3 * MIB + 8].cpu()

    assert redgreen.prove(program, allocator="expandable").green.verdict == "refuted"


def leaning(joined: bool) -> Program:
    """Another stream takes freed memory, and reads what was written before the free."""

    def program() -> torch.Tensor:
        third, out = torch.cuda.Stream(), torch.zeros(8, device="cuda")
        torch.cuda.synchronize()
        scratch = torch.ones(128, device="cuda")
        out.add_(scratch[:8])
        del scratch
        if joined:
            third.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(third):
            taken = torch.empty(128, device="cuda")
            taken[:8] = out
            return taken[:8].cpu()

    return program


@pytest.mark.parametrize("allocator", SOME)
def test_the_wait_that_a_reuse_implies_hides_no_race(allocator: str) -> None:
    assert redgreen.prove(leaning(False), allocator=allocator).green.verdict == "refuted"
    assert redgreen.prove(leaning(True), allocator=allocator).green.verdict == "proved"


@pytest.mark.parametrize("allocator", SOME)
def test_the_block_that_is_taken_only_if_another_is_not_done(allocator: str) -> None:
    """When all is done, nothing is asked about the second block: the first one is taken."""

    def program() -> tuple[torch.Tensor, ...]:
        one, two = torch.cuda.Stream(), torch.cuda.Stream()
        outs = [torch.zeros(128, device="cuda") for _ in range(2)]
        parts: list[torch.Tensor | None] = [torch.ones(128, device="cuda") for _ in range(4)]
        torch.cuda.synchronize()
        for stream, out, part in zip((one, two), outs, parts[::2], strict=True):
            assert part is not None
            with torch.cuda.stream(stream):
                out.add_(part)
            part.record_stream(stream)
        del part
        parts[0] = None
        parts[2] = None
        taken = torch.full((128,), 7.0, device="cuda")
        torch.cuda.synchronize()
        return *outs, taken

    proof = redgreen.prove(program, allocator=allocator)
    assert proof.green.verdict == "proved"
    assert [e.verdict for e in proof.edges if e.kind == "record_stream"] == ["load-bearing"]


@pytest.mark.parametrize("mended", [None, "record_stream", "wait_stream"])
def test_memory_that_is_unmapped_while_another_stream_reads_it(mended: str | None) -> None:
    """empty_cache waits for the block's own stream and for marks, not for this reader."""

    def program() -> torch.Tensor:
        main, side = torch.cuda.current_stream(), torch.cuda.Stream()
        seen = torch.zeros(64, dtype=torch.uint8, device="cuda")
        block = torch.ones(12 << 20, dtype=torch.uint8, device="cuda")
        side.wait_stream(main)
        with torch.cuda.stream(side):
            seen.add_(block[:64])
        if mended == "record_stream":
            block.record_stream(side)
        del block
        if mended == "wait_stream":
            main.wait_stream(side)
        torch.cuda.empty_cache()
        main.wait_stream(side)
        return seen

    proof = redgreen.prove(program, allocator="expandable")
    assert proof.green.verdict == ("proved" if mended else "refuted")
