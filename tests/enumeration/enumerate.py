"""All outcomes of a program, by running every interleaving of its agents.

A kernel is not one step: each of its pieces is read and written by steps of their own, in any order
of the pieces, while other agents do theirs (``whole``: each kernel, copy and host access is one
step). Equal states are met once.

One reduction (``reduce``): a step that touches nothing that any other agent has yet to touch may as
well come first, alone. Its steps commute with all that is still to come, so no outcome is lost.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from .lower import HOST, Access, Act, Ask, Cell, Give, Item, Lowered, Mark, Take, Task, Until, lower
from .program import Program

GARBAGE = 10**12  # what fresh memory holds, times the number of the place
MAX_STATES = 30_000

Outcome = tuple[tuple[int, ...], ...]
Began = tuple[object, ...]  # of each task: values read so far (None: not yet), or True when done
_Spot = tuple[int, int]  # cells that may turn out to be the same have the same spot


class TooLarge(Exception):
    """The program has more states than anybody wants to wait for."""


class State(NamedTuple):
    act: int  # of the host
    done: tuple[int, ...]  # items, of each stream
    began: tuple[Began, ...]  # the current item of each stream, then the current act of the host
    memory: tuple[int, ...]  # host cells, then the places of each stream
    places: tuple[int, ...]  # of each lifetime so far, in the memory of its stream, or of all
    freed: tuple[int, ...]  # lifetimes that ended


def outcomes(program: Program, dropped: frozenset[int] = frozenset(), whole: bool = False,
             reduce: bool = True, limit: int = MAX_STATES,
             allocator: str = "native") -> frozenset[Outcome]:
    """Everything that may come of the program without the sync calls at these sites."""
    low = lower(program, dropped, allocator)
    return _Search(low, whole, reduce, allocator == "stream-ordered").run(limit)


def shown(outcome: Outcome) -> Outcome:
    """Whatever was computed from fresh memory is one and the same: its bytes are nobody's."""
    return tuple(tuple(v if abs(v) < 10**7 else GARBAGE for v in row) for row in outcome)


@dataclass(slots=True)
class _Step:
    """Something that may happen next, and what it touches."""

    after: State
    reads: set[_Spot]
    writes: set[_Spot]
    free: bool = False  # commutes with everything that can still happen


class _Search:
    def __init__(self, low: Lowered, whole: bool, reduce: bool, shared: bool = False) -> None:
        self._low, self._whole, self._reduce = low, whole, reduce
        self._one = shared  # one memory for all streams
        self._streams = range(len(low.queues))
        self._host = len(low.queues)
        self._takes = any(isinstance(act, Take) for act in low.acts)
        self._still = [_suffixes(queue, self._spots) for queue in low.queues]
        self._still.append(_suffixes(low.acts, self._spots))
        self._curious = [any(map(self._asks, low.acts[i:])) for i in range(len(low.acts) + 1)]
        self._shared = self._shared_spots()

    def run(self, limit: int) -> frozenset[Outcome]:
        found: set[Outcome] = set()
        start = self._start()
        stack, seen = [start], {start}
        while stack:
            state = stack.pop()
            if state.act == len(self._low.acts):
                found.add(self._outcome(state))
                continue
            for after in self._next(state):
                if after not in seen:
                    seen.add(after)
                    stack.append(after)
            if len(seen) > limit:
                raise TooLarge
        return frozenset(found)

    def _start(self) -> State:
        low = self._low
        values = [GARBAGE * (i + 1) for i in range(self._host * len(low.homes))]
        places: list[int] = []
        for i, value in enumerate(low.values):
            places.append(i if self._one else low.homes[:i].count(low.homes[i]))
            values[self._base(i) + places[i]] = value
        nothing: tuple[Began, ...] = ((),) * (self._host + 1)
        memory = (*low.cells, *(value for value in values for _ in range(low.pieces)))
        return State(0, (0,) * self._host, nothing, memory, tuple(places), ())

    def _outcome(self, state: State) -> Outcome:
        return tuple(tuple(state.memory[slot] for slot in slots) for slots in self._low.outputs)

    # -- what may happen next -------------------------------------------------------------------

    def _next(self, state: State) -> list[State]:
        steps: list[_Step] = []
        for agent in (*self._streams, self._host):
            for step in self._of(agent, state):
                if self._reduce and (step.free or self._alone(agent, step, state)):
                    return [step.after]
                steps.append(step)
        return [step.after for step in steps]

    def _alone(self, agent: int, step: _Step, state: State) -> bool:
        if not step.reads and not step.writes:
            return False
        for other, position in enumerate((*state.done, state.act)):
            if other == agent:
                continue
            reads, writes = self._still[other][position]
            if not (step.writes.isdisjoint(reads) and step.writes.isdisjoint(writes)
                    and step.reads.isdisjoint(writes)):
                return False
        return True

    def _of(self, agent: int, state: State) -> Iterator[_Step]:
        if agent == self._host:
            yield from self._act(self._low.acts[state.act], state)
            return
        place = state.done[agent]
        if place == self._low.issued[state.act][agent]:
            return
        item = self._low.queues[agent][place]
        if isinstance(item, Access):
            yield from self._access(agent, item, state)
        elif isinstance(item, Mark):
            yield _Step(self._finish(agent, state), set(), set(), not self._curious[state.act])
        elif self._reached(item, state):
            yield _Step(self._finish(agent, state), set(), set(), True)

    def _act(self, act: Act, state: State) -> Iterator[_Step]:
        free = partial(_Step, reads=set(), writes=set(), free=True)
        match act:
            case Access():
                yield from self._access(self._host, act, state)
            case Until():
                if self._reached(act, state):
                    yield free(self._finish(self._host, state))
            case Give():
                given = state._replace(freed=tuple(sorted((*state.freed, act.lifetime))))
                yield free(self._finish(self._host, given))
            case Take():
                after, certain = self._take(act, state)
                yield _Step(self._finish(self._host, after), set(), set(), certain)
            case Ask():
                yield _Step(self._answer(act, state), set(), set())

    def _reached(self, until: Until, state: State) -> bool:
        return all(state.done[stream] >= count for stream, count in until.points)

    def _finish(self, agent: int, state: State, acts: int = 1) -> State:
        began = (*state.began[:agent], (), *state.began[agent + 1 :])
        if agent == self._host:
            return state._replace(act=state.act + acts, began=began)
        done = (*state.done[:agent], state.done[agent] + 1, *state.done[agent + 1 :])
        return state._replace(done=done, began=began)

    def _answer(self, ask: Ask, state: State) -> State:
        """Truthfully: has the record executed? (It may come long after what it marks.)"""
        yes = state.done[ask.point[0]] >= ask.point[1]
        if ask.answer is None:
            return self._finish(self._host, state, 2 if yes else 1)
        memory = self._written(state, ask.answer, int(yes))
        return self._finish(self._host, state._replace(memory=memory))

    def _take(self, take: Take, state: State) -> tuple[State, bool]:
        """The smallest free range of the stream's memory, of equal ones the first; its first place.

        All requests are of one size, and a freed place is free when its markers are done. What was
        never used is a range as well, the largest.
        """
        if self._one:
            return self._take_of_all(take, state)
        low = self._low
        taken, certain = set(), True
        for lifetime, place in enumerate(state.places):
            if low.homes[lifetime] == take.stream:
                markers = low.markers[lifetime] if lifetime in state.freed else ()
                late = any(state.done[stream] < count for stream, count in markers)
                certain = certain and not late
                if late or lifetime not in state.freed:
                    taken.add(place)
        ends = sorted({-1, *taken})
        ranges = [(after - before - 1, before + 1)
                  for before, after in zip(ends, [*ends[1:], 10**6], strict=True)]
        _, place = min((length, start) for length, start in ranges if length)
        return state._replace(places=(*state.places, place)), certain

    def _take_of_all(self, take: Take, state: State) -> tuple[State, bool]:
        """Stream-ordered: the smallest range of freed places, as if all frees were past; its first
        place, if that free is past or the stream comes after it; else the same without that place.
        """
        latest = {place: lifetime for lifetime, place in enumerate(state.places)}
        free = {place for place, lifetime in latest.items() if lifetime in state.freed}
        after, certain = dict(take.after), True
        while free:
            starts = [place for place in free if place - 1 not in free]
            lengths = [next(n for n in range(1, len(latest) + 1) if place + n not in free)
                       for place in starts]
            _, place = min(zip(lengths, starts, strict=True))
            points = [(stream, count) for stream, count in self._low.markers[latest[place]]
                      if after.get(stream, 0) < count]
            late = any(state.done[stream] < count for stream, count in points)
            certain = certain and not late
            if not late:
                return state._replace(places=(*state.places, place)), certain
            free.remove(place)
        return state._replace(places=(*state.places, max(latest, default=-1) + 1)), certain

    # -- accesses -------------------------------------------------------------------------------

    def _access(self, agent: int, access: Access, state: State) -> Iterator[_Step]:
        began = state.began[agent] or ((),) * len(access.tasks)
        if self._whole:
            for task in access.tasks:
                values = [state.memory[self._slot(state, cell)] for cell in task.reads]
                memory = self._written(state, task.write, _value(task, values))
                state = state._replace(memory=memory)
            reads, writes = self._spots(access)
            yield _Step(self._finish(agent, state), reads, writes)
            return
        for i, task in enumerate(access.tasks):
            if began[i] is not True:
                for now, memory, reads, writes in self._steps(task, began[i], state):
                    progress = (*began[:i], now, *began[i + 1 :])
                    after = state._replace(memory=memory)
                    if all(p is True for p in progress):
                        after = self._finish(agent, after)
                    else:
                        rest = state.began[agent + 1 :]
                        after = after._replace(began=(*state.began[:agent], progress, *rest))
                    yield _Step(after, reads, writes)

    def _steps(
        self, task: Task, began: object, state: State
    ) -> Iterator[tuple[object, tuple[int, ...], set[_Spot], set[_Spot]]]:
        """The ways in which one piece goes on."""
        reads, write = [self._spot(cell) for cell in task.reads], self._spot(task.write)
        if sum(spot in self._shared for spot in (*reads, write)) <= 1:  # nothing can come between
            values = [state.memory[self._slot(state, cell)] for cell in task.reads]
            memory = self._written(state, task.write, _value(task, values))
            yield True, memory, set(reads), {write}
            return
        known = list(began) or [None] * len(reads)  # type: ignore[call-overload]
        if None not in known:
            yield True, self._written(state, task.write, _value(task, known)), set(), {write}
        for i, cell in enumerate(task.reads):
            if known[i] is None:
                value = state.memory[self._slot(state, cell)]
                yield (*known[:i], value, *known[i + 1 :]), state.memory, {reads[i]}, set()

    def _slot(self, state: State, cell: Cell) -> int:
        where, piece = cell
        low = self._low
        if where == HOST:
            return piece
        place = self._base(where) + state.places[where]
        return len(low.cells) + place * low.pieces + piece

    def _base(self, lifetime: int) -> int:
        """Where the memory begins that the lifetime is in."""
        return 0 if self._one else self._low.homes[lifetime] * len(self._low.homes)

    def _written(self, state: State, cell: Cell, value: int) -> tuple[int, ...]:
        slot = self._slot(state, cell)
        return (*state.memory[:slot], value, *state.memory[slot + 1 :])

    # -- what is known beforehand ---------------------------------------------------------------

    def _spot(self, cell: Cell) -> _Spot:
        """Lifetimes whose blocks come from one stream (or pool) may be one memory."""
        where, piece = cell
        if where == HOST or not self._takes:
            return cell
        return (-2 if self._one else -2 - self._low.homes[where]), piece

    def _spots(self, item: Item | Act) -> tuple[set[_Spot], set[_Spot]]:
        tasks = item.tasks if isinstance(item, Access) else ()
        reads = {self._spot(cell) for task in tasks for cell in task.reads}
        return reads, {self._spot(task.write) for task in tasks}

    def _shared_spots(self) -> set[_Spot]:
        touched = [reads | writes for reads, writes in (still[0] for still in self._still)]
        return {spot for i, mine in enumerate(touched) for other in touched[:i]
                for spot in mine & other}

    def _asks(self, act: Act) -> bool:
        """Does the host look at how far a stream is, without waiting?"""
        return isinstance(act, Ask) or (
            isinstance(act, Take) and any(map(bool, self._low.markers.values())))


def _value(task: Task, values: Sequence[int]) -> int:
    match task.op:
        case "fill":
            return task.k
        case "copy":
            return values[0]
        case "add":
            return values[0] + task.k
        case "mul":
            return values[0] * task.k
    return values[0] + values[1]  # gather


def _suffixes(
    agent: Sequence[Item | Act],
    spots: Callable[[Item | Act], tuple[set[_Spot], set[_Spot]]],
) -> list[tuple[set[_Spot], set[_Spot]]]:
    """What an agent reads and writes from each of its positions on."""
    found: list[tuple[set[_Spot], set[_Spot]]] = [(set(), set())]
    for item in reversed(agent):
        reads, writes = spots(item)
        found.append((found[-1][0] | reads, found[-1][1] | writes))
    return found[::-1]
