"""Which answers about marks decide where an allocation goes.

torch asks about every mark at every allocation. An answer that changes nothing for this allocation
can as well be had at a later one: the device may have got there in between, or may have been there
all the time. So a mark is only asked about where its two answers lead to different places, with the
same answers about the others. That keeps the number of schedules to explore small.

Where an answer leads is not worked out here: the allocator itself chooses (`Rules.place`), in a
copy of the pool in which some marked chunks are done.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence, Set
from functools import cache
from itertools import combinations
from typing import Protocol

from .chunks import FREE, IN_USE, MARKED, UNMAPPED, Chunk, Pool

FEW = 6  # marked chunks of which all combinations are tried

Place = tuple[int, int] | None  # address, bytes held; None: in a new segment


class Rules(Protocol):
    """How an allocator chooses."""

    def place(self, pool: Pool, size: int) -> Place: ...

    def release(self, chunk: Chunk) -> Chunk: ...


def deciding(pool: Pool, size: int, refused: Set[Chunk], rules: Rules) -> Chunk | None:
    """The marked chunk to ask about next. None: the place is the same whatever is done.

    One that decides as things are comes before one that decides only if others are done, older ones
    come first. Of many the oldest is taken, without trying all combinations.
    """
    concerned = _concerned(pool, size, [c for c in pool.marked if c not in refused])
    if not concerned:
        return None

    @cache
    def place(done: frozenset[Chunk]) -> Place:
        return rules.place(_imagined(pool, done, rules.release), size)

    few = len(concerned) <= FEW
    for count in range(len(concerned) if few else 1):
        for chunk in concerned:
            others = [other for other in concerned if other is not chunk]
            for done in map(frozenset, combinations(others, count)):
                if place(done) != place(done | {chunk}):
                    return chunk
    return None if few else concerned[0]


# -- chunks that cannot matter, whatever else is done ----------------------------------------------


def _concerned(pool: Pool, size: int, marked: Sequence[Chunk]) -> list[Chunk]:
    """Those of ``marked`` that may be part of a range that is taken, or end one by merging."""
    unsure, found = set(marked), set[Chunk]()
    limit = _surely_free(pool, size, unsure)
    seen = set[Chunk]()
    for chunk in marked:
        if chunk not in seen:
            run = list(_run(chunk, unsure))
            seen.update(run)
            if sum(part.size for part in run) >= size:
                found.update(run if limit is None else _rivals(run, size, limit))
    return [chunk for chunk in marked if chunk in found]


def _surely_free(pool: Pool, size: int, unsure: Set[Chunk]) -> tuple[int, int] | None:
    """Size and address of the best free range that fits and that nothing can change.

    Without unmapped memory behind it, it is preferred to all larger ones under each policy.
    """
    for length, address in pool.free[bisect_left(pool.free, (size, 0)) :]:
        chunk = pool.chunks[address]
        grows = chunk.after is not None and chunk.after.state == UNMAPPED
        if not grows and chunk.before not in unsure and chunk.after not in unsure:
            return length, address
    return None


def _run(chunk: Chunk, done: Set[Chunk]) -> Iterator[Chunk]:
    """The neighbours that are free, unmapped or in ``done``, from the lowest on."""
    while (before := chunk.before) is not None and _open(before, done):
        chunk = before
    at: Chunk | None = chunk
    while at is not None and _open(at, done):
        yield at
        at = at.after


def _open(chunk: Chunk, done: Set[Chunk]) -> bool:
    return chunk.state in (FREE, UNMAPPED) or chunk in done


def _rivals(run: Sequence[Chunk], size: int, limit: tuple[int, int]) -> Iterator[Chunk]:
    """The chunks in and around each range that would be preferred to the ``limit``."""
    for first, chunk in enumerate(run):
        if first and run[first - 1].state == FREE:
            continue
        total = 0
        for last in range(first, len(run)):
            total += run[last].size
            if run[last].state == UNMAPPED or (total, chunk.address) >= limit:
                break
            merges = last + 1 < len(run) and run[last + 1].state == FREE
            if total >= size and not merges:
                yield from run[max(0, first - 1) : last + 2]


# -- a pool as it would be -------------------------------------------------------------------------


def _imagined(pool: Pool, done: Set[Chunk], release: Callable[[Chunk], Chunk]) -> Pool:
    """A copy of the pool in which these marked chunks are free. ``pool`` stays as it is."""
    if not done:
        return pool
    copy, seen = pool.copy(), set[Chunk]()
    for chunk in done:
        if chunk not in seen:
            run = list(_run(chunk, done))
            seen.update(run)
            for part in _copied(run, copy):
                if part.state == MARKED:
                    release(part)
    return copy


def _copied(run: Sequence[Chunk], pool: Pool) -> list[Chunk]:
    """The chunks of a run as those of ``pool``, between something that is in use."""
    ends = run[0].before, run[-1].after
    copies = [_copy(chunk, pool, chunk.state) for chunk in run]
    for chunk in copies:
        if chunk.state != MARKED:
            (pool.chunks if chunk.state == FREE else pool.unmapped)[chunk.address] = chunk
    before, after = (None if end is None else _copy(end, pool, IN_USE) for end in ends)
    line = [before, *copies, after]
    for place, chunk in enumerate(copies):
        chunk.before, chunk.after = line[place], line[place + 2]
    return copies


def _copy(chunk: Chunk, pool: Pool, state: int) -> Chunk:
    copy = Chunk(pool, chunk.memory, chunk.start, chunk.size)
    copy.state = state
    return copy
