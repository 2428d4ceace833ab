"""Overlap of extents against sets of bytes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from redgreen import extent as module
from redgreen.extent import overlap
from redgreen.trace import Extent


def extent(start: int, run: int, *lattice: tuple[int, int]) -> Extent:
    last = start + sum((count - 1) * stride for count, stride in lattice)
    return Extent(start, last + run, run, lattice)


def content(e: Extent) -> set[int]:
    starts = {e.start}
    for count, stride in e.lattice:
        starts = {s + i * stride for s in starts for i in range(count)}
    return {s + i for s in starts for i in range(e.run)}


EXTENTS = st.builds(
    extent, st.integers(0, 40), st.integers(1, 6),
    *[st.tuples(st.integers(1, 4), st.integers(1, 20))] * 2,
) | st.builds(extent, st.integers(0, 40), st.integers(1, 20))


@settings(max_examples=300, deadline=None)
@given(EXTENTS, EXTENTS)
def test_overlap_is_that_of_the_bytes(a: Extent, b: Extent) -> None:
    assert overlap(a, b) is bool(content(a) & content(b))
    assert overlap(b, a) is overlap(a, b)


def test_two_columns_of_a_matrix_are_disjoint() -> None:
    assert not overlap(extent(0, 4, (100, 16)), extent(4, 4, (100, 16)))


def test_a_column_and_the_matrix_overlap() -> None:
    assert overlap(extent(4, 4, (100, 16)), extent(0, 1600))


def test_an_empty_extent_overlaps_nothing() -> None:
    assert not overlap(Extent(4, 4, 0), extent(0, 8))


def test_a_lattice_too_large_to_expand_counts_as_its_box(monkeypatch) -> None:  # type: ignore[no-untyped-def]
    monkeypatch.setattr(module, "MAX_RUNS", 3)
    module._offsets.cache_clear()
    assert overlap(extent(0, 4, (7, 16)), extent(4, 4, (7, 16)))
    module._offsets.cache_clear()
