"""Happens-before of a trace from which some edges have been taken out.

The order is a function of (trace, suppressed edges): what an event wait is bound to is derived
again in issue order, because a record that is not made leaves the event at its older record, and a
wait on nothing orders nothing.

Every rule leads forward in issue order, so one pass suffices, and a step's own index serves as its
time: entry ``a`` of a clock is one past the last step of agent ``a`` that comes before. Step ``i``
of agent ``a`` comes before the step whose clock it is iff ``clock[a] > i``.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence, Set
from typing import Protocol

from .trace import Kind, Step, Trace

NOTHING: frozenset[int] = frozenset()


class Moment(Protocol):
    """What the order looks at in a step."""

    @property
    def index(self) -> int: ...
    @property
    def agent(self) -> int: ...
    @property
    def issuer(self) -> int: ...
    @property
    def kind(self) -> Kind: ...
    @property
    def key(self) -> Hashable: ...
    @property
    def targets(self) -> tuple[int, ...]: ...
    @property
    def taken(self) -> bool: ...


def vanishes(step: Step, suppressed: Set[int]) -> bool:
    """A step that sync calls made is gone when all of them are; other steps always stay."""
    return bool(suppressed) and bool(step.edges) and all(edge in suppressed for edge in step.edges)


class Clocks:
    """The vector clocks of all agents, moved forward one step at a time."""

    __slots__ = ("_clocks", "_joined", "_published", "_versions")

    def __init__(self, agents: int) -> None:
        self._clocks = [[0] * agents for _ in range(agents)]
        self._published: dict[Hashable, list[int]] = {}
        # An issuer's clock rarely changes between two of its enqueues; versions make it free to
        # find that out, so that an ordinary device step costs no join.
        self._versions = [0] * agents
        self._joined: dict[tuple[int, int], int] = {}

    def grow(self, agents: int) -> None:
        """There are so many agents now (a trace that is still being written)."""
        more = agents - len(self._clocks)
        if more > 0:
            for clock in (*self._clocks, *self._published.values()):
                clock += [0] * more
            self._clocks += [[0] * agents for _ in range(more)]
            self._versions += [0] * more

    def advance(self, step: Moment) -> list[int]:
        """Take one more step (in issue order) and return its clock, valid until the next call."""
        agent, issuer = step.agent, step.issuer
        clock = self._clocks[agent]
        if issuer != agent:
            version = self._versions[issuer]
            if self._joined.get((agent, issuer)) != version:
                self._joined[agent, issuer] = version
                self._join(agent, self._clocks[issuer])
            clock[issuer] = step.index  # enqueue order: all that the issuer has done so far
        clock[agent] = step.index + 1
        if step.kind is not Kind.ACCESS:
            self._synchronize(step, clock)
        return clock

    def clock(self, agent: int) -> list[int]:
        return self._clocks[agent]

    def forget(self, floor: Sequence[int]) -> None:
        """Drops publications that tell nobody anything: every later step comes after ``floor``."""
        self._published = {
            key: clock for key, clock in self._published.items()
            if any(known > least for known, least in zip(clock, floor, strict=True))
        }

    def _synchronize(self, step: Moment, clock: list[int]) -> None:
        if step.kind is Kind.PUBLISH:
            self._published[step.key] = clock.copy()
        elif step.kind is Kind.ACQUIRE or (step.kind is Kind.CHOICE and step.taken):
            if step.key is not None and (published := self._published.get(step.key)):
                self._join(step.agent, published)
            for target in step.targets:
                self._join(step.agent, self._clocks[target])
        elif step.kind is Kind.DRAIN:
            for target in step.targets:
                self._join(step.agent, self._clocks[target])

    def _join(self, agent: int, other: list[int]) -> None:
        self._versions[agent] += 1
        clock = self._clocks[agent]
        clock[:] = map(max, clock, other)


def clocks(trace: Trace, suppressed: Set[int] = NOTHING) -> Iterator[tuple[Step, list[int]]]:
    """Each step that is left, with its clock (which the next step may change)."""
    state = Clocks(len(trace.agents))
    for step in trace.steps:
        if not vanishes(step, suppressed):
            yield step, state.advance(step)


def predecessors(trace: Trace) -> list[tuple[int, ...]]:
    """The direct predecessors of each step; their transitive closure is the order.

    Twice as slow as clocks and not linear in memory: for the small racy traces that are explored.
    """
    last: dict[int, int] = {}
    published: dict[Hashable, int] = {}
    result: list[tuple[int, ...]] = []
    for step in trace.steps:
        before = {last[agent] for agent in (step.agent, step.issuer) if agent in last}
        acquires = step.kind is Kind.ACQUIRE or (step.kind is Kind.CHOICE and step.taken)
        if acquires and step.key is not None and step.key in published:
            before.add(published[step.key])
        if acquires or step.kind is Kind.DRAIN:
            before.update(last[target] for target in step.targets if target in last)
        if step.kind is Kind.PUBLISH:
            published[step.key] = step.index
        last[step.agent] = step.index
        result.append(tuple(sorted(before)))
    return result


def implied(
    before: Sequence[Iterable[int]], position: Sequence[int], first: int, second: int,
    without: Iterable[int],
) -> bool:  # fmt: skip
    """Does first come before second by another way than directly from ``without``? ``before`` are
    the direct predecessors of each step, whose ``position`` is smaller."""
    direct = set(without)
    stack = [step for step in before[second] if step not in direct]
    seen: set[int] = set()
    while stack:
        step = stack.pop()
        if step == first:
            return True
        if step not in seen and position[step] > position[first]:
            seen.add(step)
            stack.extend(before[step])
    return False


def questions(
    trace: Trace, suppressed: Set[int] = NOTHING
) -> list[tuple[int, tuple[int, ...], bool]]:
    """What each CHOICE looks at without the edges: the choice, the steps it asks about, and
    whether the order already decides that they are done.
    """
    state = Clocks(len(trace.agents))
    published: dict[Hashable, int] = {}
    last: dict[int, int] = {}
    found = []
    for step in trace.steps:
        if vanishes(step, suppressed):
            continue
        if step.kind is Kind.CHOICE:
            asked = [published[step.key]] if step.key in published else []
            asked += [last[target] for target in step.targets if target in last]
            clock = state.clock(step.agent)
            done = all(clock[trace.steps[index].agent] > index for index in asked)
            found.append((step.index, tuple(asked), done))
        if step.kind is Kind.PUBLISH:
            published[step.key] = step.index
        last[step.agent] = step.index
        state.advance(step)
    return found
