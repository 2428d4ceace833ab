"""Rows: which request sits where in the step, and what moved since the last one."""

from __future__ import annotations

from .inputs import Group, StepInputs
from .request import Request, Status
from .scheduler import ScheduledRow, ScheduledStep


class InputBatch:
    """Rows of all running requests: those of the step first, in its order, then idle ones."""

    def __init__(self) -> None:
        self._requests: list[Request] = []

    def arrange(self, step: ScheduledStep) -> list[int] | None:
        """Takes the step's order; for each row the row it had before, or None if none moved.

        A row that is new names itself: nobody reads what stands there before its first sample.
        """
        before = {id(request): row for row, request in enumerate(self._requests)}
        scheduled = [row.request for row in step.rows]
        here = {id(request) for request in scheduled}
        idle = [
            request
            for request in self._requests
            if request.status is Status.RUNNING and id(request) not in here
        ]
        self._requests = [*scheduled, *idle]
        sources = [before.get(id(request), row) for row, request in enumerate(self._requests)]
        return None if sources == list(range(len(sources))) else sources


def groups_of(rows: tuple[ScheduledRow, ...], longest_uniform: int) -> tuple[Group, ...]:
    """Single-token rows together, every longer one by itself.

    A step in which all rows have one length up to ``longest_uniform`` is one group.
    """
    lengths = [row.count for row in rows]
    if len(set(lengths)) == 1 and lengths[0] <= longest_uniform:
        return (Group(0, len(rows), 0, lengths[0]),)
    singles = lengths.count(1)
    groups = [Group(0, singles, 0, 1)] if singles else []
    token = singles
    for index in range(singles, len(rows)):
        groups.append(Group(index, 1, token, lengths[index]))
        token += lengths[index]
    return tuple(groups)


def prepare_inputs(
    step: ScheduledStep, carried_ids: list[int], block_size: int, longest_uniform: int
) -> StepInputs:
    """The step as host values; ``carried_ids`` are the tokens of its carried rows."""
    ids, positions, slots = list(carried_ids), list[int](), list[int]()
    for row in step.rows:
        stop = row.start + row.count
        if not row.carried:
            ids += row.request.token_ids(row.start, stop)
        positions += range(row.start, stop)
        slots += [_slot(row.request, position, block_size) for position in range(row.start, stop)]
    return StepInputs(
        ids,
        positions,
        slots,
        [list(row.request.blocks) for row in step.rows],
        [row.start + row.count for row in step.rows],
        [row.request.state_slot for row in step.rows],
        groups_of(step.rows, longest_uniform),
        carried=len(carried_ids),
    )


def _slot(request: Request, position: int, block_size: int) -> int:
    """Row of the KV cache for ``position``."""
    return request.blocks[position // block_size] * block_size + position % block_size
