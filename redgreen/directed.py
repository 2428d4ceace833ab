"""Schedules that are worth a run: those that reverse a conflict, and a few that differ a lot."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from .classes import choices, order
from .order import questions
from .races import Conflict
from .run import Run
from .schedule import Policy, Schedule
from .trace import Trace

RANDOM_SEEDS = (1, 2, 3)
MAX_STREAMS = 8  # first and last are demonstrated for that many


def holds(trace: Trace, conflicts: Iterable[Conflict]) -> Iterator[Schedule]:
    """Schedules that reverse a conflict: first eagerly, then with everything else late."""
    answers = choices(trace)
    late = tuple(order(trace, (choice, step)) for choice, asked, _ in questions(trace)
                 if not trace.steps[choice].taken for step in asked)
    for conflict in conflicts:
        flip = order(trace, (conflict.second, conflict.first))
        yield Schedule("serial", orders=(flip, *late), choices=answers)
        yield Schedule("lazy", orders=(flip, *late), choices=answers)
        if answers:
            yield Schedule("lazy", orders=(flip,))


def called(run: Run, schedules: Iterable[Schedule]) -> Iterator[Schedule]:
    """These, with the calls of host threads in the order in which ``run`` was told to make them."""
    for schedule in schedules:
        yield replace(schedule, calls=run.schedule.calls)


def demonstrations(trace: Trace) -> Iterator[Schedule]:
    """Schedules as different from serial as they get."""
    yield Schedule("lazy")
    streams = [agent.name for agent in trace.agents if not agent.host][:MAX_STREAMS]
    if len(streams) > 1:
        for stream in streams:
            policies: tuple[Policy, ...] = ("first", "last")
            for policy in policies:
                yield Schedule(policy, stream=stream)
    for seed in RANDOM_SEEDS:
        yield Schedule("random", seed=seed)


def spread(trace: Trace, conflicts: Sequence[Conflict], limit: int = 3) -> list[Conflict]:
    """A few of each kind of conflict (pair of sites): the first, the last and some in between."""
    groups: dict[tuple[int, int, str], list[Conflict]] = {}
    for conflict in conflicts:
        sites = trace.steps[conflict.first].site, trace.steps[conflict.second].site
        groups.setdefault((*sites, conflict.hazard), []).append(conflict)
    chosen = []
    for rank in range(limit):  # one of each kind before the second of any
        for group in groups.values():
            if rank < len(group):
                chosen.append(group[rank * (len(group) - 1) // max(min(limit, len(group)) - 1, 1)])
    return chosen
