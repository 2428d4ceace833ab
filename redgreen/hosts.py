"""The orders of host threads: does it matter whose call came first where nothing fixes that?

Threads that enqueue without a lock, queue, start or join between their calls are a choice of the
operating system: FIFO is no happens-before between them. Each such order that decides a conflict is
reversed, by keeping one thread from making its call before the other one has made its own. Which
thread takes a lock or a task first is not reversed: programs let that decide what they do.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from .classes import choices, order
from .directed import spread
from .explore import Abandoned
from .hostorder import calls_of, lucky_place, reversible, unfixed
from .judge import Base
from .races import Analysis, Conflict
from .schedule import Policy, Schedule
from .trace import Trace

ONE = "one host thread"
EXPLORED = "explored host orders"
RECORDED = "recorded host order"

SHARE = 4  # of the budget, one part in so many is for this

Pair = tuple[int, int]  # calls, in the order in which they were made
Show = Callable[[Trace, Conflict, Pair, Iterator[Schedule]], None]


def unexplored(trace: Trace) -> str:
    """The scope of a verdict for which no other order of calls was looked at."""
    return ONE if len({step.issuer for step in trace.steps}) < 2 else RECORDED


def explore_hosts(base: Base, show: Show) -> str:
    """The scope of the verdicts. Afterwards the base knows the outcomes of other orders, and its
    search asks for them as well if all are known. ``show`` runs schedules for a race's report.
    """
    runs = base.variants()
    if all(unexplored(run.trace) == ONE for _, run in runs):
        return ONE
    undecided = [(run.trace, base.analyses[key]) for key, run in runs
                 if unfixed(run.trace, base.analyses[key])]
    lucky = any(lucky_place(run.trace) for _, run in runs)
    if not undecided:
        return RECORDED if lucky else EXPLORED
    if base.several or not base.search.complete or base.search.too_many_variants:
        return RECORDED
    return EXPLORED if _explored(base, undecided, show) and not lucky else RECORDED


def _explored(base: Base, undecided: list[tuple[Trace, Analysis]], show: Show) -> bool:
    search = base.search
    budget, search.budget = search.budget, min(
        search.budget, search.spent + search.budget // SHARE)
    _count_hosts(base, True)
    try:
        for trace, found in undecided:
            for conflict, pair, schedules in _reversals(trace, found):
                show(trace, conflict, pair, schedules)
        search.exhaust(base.serial)
        base.analyse()
        complete = search.complete and not search.too_many_variants
    except Abandoned:
        complete = False
    search.budget = budget
    if not complete:
        _count_hosts(base, False)
        search.complete, search.gap = True, ""  # of the recorded order, as before
    base.analyse()
    return complete


def _count_hosts(base: Base, hosts: bool) -> None:
    base.search.count_hosts(hosts)
    base.analyses.clear()
    base.analyse()


def _reversals(
    trace: Trace, found: Analysis
) -> Iterator[tuple[Conflict, Pair, Iterator[Schedule]]]:
    """A few of each kind of conflict, with the schedules in which the other call comes first."""
    pairs = calls_of(trace, found).pairs
    possible = reversible(trace, pairs)
    for conflict in spread(trace, unfixed(trace, found)):
        inside = [p for p in possible if conflict.first <= p[0] and p[1] <= conflict.second]
        for pair in inside[-2:]:  # the last calls decide
            yield conflict, pair, _reversed(trace, pairs, pair)


def _reversed(trace: Trace, pairs: list[Pair], pair: Pair) -> Iterator[Schedule]:
    flip = order(trace, (pair[1], pair[0]))
    kept = tuple(order(trace, other) for other in pairs if other != pair)
    policies: tuple[Policy, ...] = ("serial", "lazy")
    for policy in policies:
        yield Schedule(policy, choices=choices(trace), calls=(flip, *kept))
