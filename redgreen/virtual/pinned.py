"""Pinned host memory (design rule 7), as CachingHostAllocator.h hands it out again.

A freed block waits for the streams that used it. Each allocation looks which of them are done,
oldest first, up to the first that is not (process_events). Of the free blocks the one that became
free last is taken. Blocks are powers of two and never split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from .chunks import Chunk, Pool, Source
from .work import Work

if TYPE_CHECKING:
    from .memory import Block


class Pinned:
    """Each block is a memory of its own."""

    def __init__(self, source: Source, done: Callable[[Work], bool]) -> None:
        self._source, self._done = source, done
        self._pool = Pool(small=False)
        self._chunks: list[Chunk] = []  # in the order in which they were freed, or became free

    def take(self, size: int, stream: int, ask: bool) -> Chunk:
        """process_events, then get_free_block, which takes from the back."""
        chunks = self._chunks
        for chunk in [chunk for chunk in chunks if chunk.marks and chunk.size == size]:
            if not all(self._done(work) for work in chunk.marks):
                break
            chunk.marks = []
            chunks.remove(chunk)
            chunks.append(chunk)
        for chunk in reversed(chunks):
            if chunk.size == size and not chunk.marks:
                chunks.remove(chunk)
                return chunk
        self._source.reserve(size)
        return Chunk(self._pool, self._source.segment(size), 0, size)

    def marks(self, block: Block) -> list[Work]:
        """On every stream that used it."""
        return [block.heap.mark(block, stream, edges)
                for stream, edges in sorted(block.recorded.items())]

    def give(self, chunk: Chunk, marks: list[Work]) -> None:
        chunk.marks = marks
        self._chunks.append(chunk)

    def settle(self, wait: Callable[[Work], None]) -> None:
        for chunk in self._chunks:
            for work in chunk.marks:
                wait(work)
            chunk.marks = []

    def give_back(self) -> None:
        for chunk in self._chunks:
            self._source.reserve(-chunk.size)
        self._chunks.clear()
