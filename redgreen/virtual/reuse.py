"""Which answers about marks decide where an allocation goes.

torch asks about every mark at every allocation. An answer that changes nothing for this allocation
can as well be had at a later one: the device may have got there in between, or may have been there
all the time. So a choice is only made where its two answers lead to different places, which keeps
the number of schedules to explore small.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import NamedTuple, Protocol

from .chunks import FREE, MARKED, UNMAPPED, Chunk, Pool


class Span(NamedTuple):
    """A range that is free, or would be."""

    start: int  # address
    size: int
    grows: bool  # unmapped memory follows

    def overlaps(self, other: Span) -> bool:
        return self.start < other.start + other.size and other.start < self.start + self.size


class Rules(Protocol):
    """How an allocator chooses."""

    def rank(self, span: Span) -> tuple[int, ...]: ...

    def held(self, pool: Pool, span: Span, size: int) -> int: ...


def matters(chunk: Chunk, size: int, refused: Set[Chunk], rules: Rules, now: Sequence[Span],
            best: Span | None) -> bool:
    """Would the allocation of ``size`` go elsewhere if this marked chunk were free?

    It merges with free neighbours, and with those marked ones that turn out to be done as well.
    ``now``: the free ranges that fit, ``best`` among them.
    """
    pool = chunk.pool
    for span in _with_neighbours(chunk, refused):
        if span.size < size:
            continue
        if best is None:
            return True
        if not span.overlaps(best):
            if rules.rank(span) < rules.rank(best):
                return True
            continue
        if span.start != best.start:
            return True
        if rules.held(pool, span, size) != rules.held(pool, best, size):
            return True
        # What was the best is part of something larger now: others may fit better.
        rivals = [other for other in now if not other.overlaps(span)]
        rivals += [other for mark in pool.marked if mark not in refused
                   for other in _with_neighbours(mark, refused)
                   if other.size >= size and not other.overlaps(span)]  # fmt: skip
        if any(rules.rank(other) < rules.rank(span) for other in rivals):
            return True
    return False


def _with_neighbours(chunk: Chunk, refused: Set[Chunk]) -> Iterator[Span]:
    """The free ranges that could come of it."""
    for before, _ in _reach(chunk, False, refused):
        for after, grows in _reach(chunk, True, refused):
            yield Span(chunk.address - before, before + chunk.size + after, grows)


def _reach(chunk: Chunk, forward: bool, refused: Set[Chunk]) -> Iterator[tuple[int, bool]]:
    """How many bytes on one side may merge with it, for each number of marked chunks that do."""
    extent, grows = 0, False
    at = chunk.after if forward else chunk.before
    while True:
        while at is not None and at.state in (FREE, UNMAPPED):
            extent, grows = extent + at.size, at.state == UNMAPPED
            at = at.after if forward else at.before
        yield extent, grows
        if at is None or at.state != MARKED or at in refused:
            return
        extent, grows = extent + at.size, False
        at = at.after if forward else at.before
