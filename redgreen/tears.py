"""Kernels that overlap: what one step leaves while another is half done.

Two kernels without an order between them may run at once. Then one can see the other's output half
written (a torn copy), and two that read and write the same bytes can both read first (a lost
update). Neither is an order of whole steps, so reversing a race does not show it. Here one step of
a race is executed in two parts, with the other one in between:

* split: every other eight bytes of its output are written by the first part, the rest by the
  second, from what the memory holds by then. Eight bytes are the largest access that the PTX memory
  model takes as one (a vector access counts as several); elements are never cut.
* stale: the first part reads everything and the second writes everything.

A step that races with several others may also last so long that it begins before all of them and
ends after them. One step is torn at a time; other races are as in the serial run.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import combinations

from .classes import choices
from .extent import overlap
from .races import Conflict
from .schedule import Order, Schedule, Torn, begin
from .trace import Access, Step, Trace

WHOLE = 8  # bytes that are read and written at once
PARTNERS = 5  # of one step that it may be around


def tears(trace: Trace, conflicts: Iterable[Conflict]) -> Iterator[Schedule]:
    """Schedules in which one step of a conflict meets the other half done."""
    answers = choices(trace)
    for conflict in conflicts:
        first, second = trace.steps[conflict.first], trace.steps[conflict.second]
        for outer, inner in ((first, second), (second, first)):
            if trace.agents[outer.agent].host:
                continue
            orders = (Order(begin(outer.label), inner.label), Order(inner.label, outer.label))
            for torn in _ways(outer, inner, by_host=trace.agents[inner.agent].host):
                yield Schedule(orders=orders, choices=answers, torn=(torn,))


def long_steps(
    trace: Trace, conflicts: Sequence[Conflict], chosen: Iterable[Conflict]
) -> Iterator[tuple[Conflict, Schedule]]:
    """Schedules in which one step of a chosen conflict lasts as long as several that it races with.

    ``conflicts`` are all that race. Steps with a single partner are left to `tears`.
    """
    answers = choices(trace)
    partners: dict[int, set[int]] = {}
    for conflict in conflicts:
        partners.setdefault(conflict.first, set()).add(conflict.second)
        partners.setdefault(conflict.second, set()).add(conflict.first)
    done: set[int] = set()
    for conflict in chosen:
        for index in (conflict.first, conflict.second):
            others = sorted(partners[index])
            step = trace.steps[index]
            if index in done or len(others) < 2 or trace.agents[step.agent].host:
                continue
            done.add(index)
            for first, last in combinations(range(min(len(others), PARTNERS)), 2):
                inside = [trace.steps[i] for i in others[first : last + 1]]
                orders = (Order(begin(step.label), inside[0].label),
                          Order(inside[-1].label, step.label))  # fmt: skip
                for torn in _ways(step, *inside, by_host=False):
                    yield conflict, Schedule(orders=orders, choices=answers, torn=(torn,))


def _ways(outer: Step, *inner: Step, by_host: bool) -> Iterator[Torn]:
    """The ways in which ``outer`` in parts differs from ``outer`` before or after all inside."""
    written = any(_meet(outer, step, lambda mine, other: mine.writes) for step in inner)
    stale = any(_meet(outer, step, lambda mine, other: mine.reads and other.writes)
                for step in inner)  # fmt: skip
    # A host write is one step; that it is seen half done shows in what the reader makes of it.
    if (written or (stale and by_host)) and any(map(_divisible, outer.accesses)):
        yield Torn(outer.label, "split")
    if written and stale:
        yield Torn(outer.label, "stale")


def _divisible(access: Access) -> bool:
    extent = access.extent
    return access.writes and access.memory >= 0 and extent.stop - extent.start > WHOLE


def _meet(outer: Step, inner: Step, how: Callable[[Access, Access], bool]) -> bool:
    return any(mine.memory == other.memory and how(mine, other)
               and overlap(mine.extent, other.extent)
               for mine in outer.accesses for other in inner.accesses)
