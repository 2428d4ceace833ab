"""What one host thread hands to another: the items of queues, permits, flags, results.

Queues, semaphores, events and futures are built on a lock, and who takes a lock comes after all who
had it before. That is more than they promise: who gets the first item knows nothing of what
happened before the second was put. So inside of their methods no lock orders anything, and only
what they promise does:

* An item is put before it is got. In a queue with n places, an item is got before the put that
  takes its place returns (as the Go memory model has it: "the kth receive on a channel with
  capacity C is synchronized before the completion of the k+Cth send"). Every ``task_done`` comes
  before ``join`` returns.
* A permit is released before it is acquired again; those that were there at first are used first.
* An event is set, a result is given, before anybody sees that it is.

Who merely looks at a queue comes after the puts of what is in it: if it is not empty of the first
of them, if it is of all gets. A lock of the program's own, and a condition, order as they are
taken.
"""

from __future__ import annotations

import concurrent.futures
import logging
import queue
import threading
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import cache, wraps
from typing import Any

from redgreen.threads.agent import Agent, current
from redgreen.threads.order import Moment

Function = Callable[..., Any]
_STATE = "_redgreen_handover"


def quietly(agent: Agent, call: Function, *args: Any, **kwargs: Any) -> Any:
    """The call, in which locks order nothing."""
    agent.quiet += 1
    try:
        return call(*args, **kwargs)
    finally:
        agent.quiet -= 1


def _now(agent: Agent) -> Moment:
    return agent.baton.order.release(agent.id)


def _after(agent: Agent, moment: Moment | None) -> None:
    if not agent.quiet:  # else it is part of something larger, which says what it promises
        agent.baton.order.acquire(agent.id, moment)


def _merged(a: Moment, b: Moment) -> Moment:
    return {thread: max(a.get(thread, 0), b.get(thread, 0)) for thread in {**a, **b}}


# -- queues ----------------------------------------------------------------------------------------


@dataclass(slots=True, eq=False)
class _Put:
    item: Any
    moment: Moment


@dataclass(slots=True)
class _Line:
    """What is in a queue, by whom, and what has become of its places."""

    unused: int  # places that nobody has put anything in
    inside: deque[_Put] = field(default_factory=deque)
    places: deque[Moment] = field(default_factory=deque)  # when they were left
    got: Moment = field(default_factory=dict)
    done: Moment = field(default_factory=dict)

    def take(self, item: Any, last: bool) -> Moment | None:
        """The put of an item that was got; of equal ones the first or the last."""
        order = range(len(self.inside))
        for spot in reversed(order) if last else order:
            if self.inside[spot].item is item:
                moment = self.inside[spot].moment
                del self.inside[spot]
                return moment
        return None  # it was there before


def _line(q: Any) -> _Line:
    line: _Line | None = getattr(q, _STATE, None)
    if line is None:
        size = getattr(q, "maxsize", 0)
        line = _Line(max(0, size - len(q.queue)) if size > 0 else 0)
        setattr(q, _STATE, line)
    return line


def _put(original: Function, agent: Agent, q: Any, item: Any, *args: Any, **kwargs: Any) -> Any:
    line = _line(q)
    entry = _Put(item, _now(agent))
    line.inside.append(entry)
    try:
        quietly(agent, original, q, item, *args, **kwargs)
    except BaseException:  # there was no place
        line.inside.remove(entry)
        raise
    if getattr(q, "maxsize", 0) > 0:
        if line.unused:
            line.unused -= 1
        elif line.places:
            _after(agent, line.places.popleft())


def _get(original: Function, agent: Agent, q: Any, *args: Any, **kwargs: Any) -> Any:
    line = _line(q)
    item = quietly(agent, original, q, *args, **kwargs)
    _after(agent, line.take(item, isinstance(q, queue.LifoQueue)))
    now = _now(agent)
    line.got = _merged(line.got, now)
    if getattr(q, "maxsize", 0) > 0:
        line.places.append(now)
    return item


def _look(original: Function, agent: Agent, q: Any) -> Any:
    """qsize, empty, full."""
    line = _line(q)
    answer = quietly(agent, original, q)
    inside = [put.moment for put in line.inside]
    for moment in inside[:1] if original.__name__ == "empty" else inside:
        _after(agent, moment)
    if not inside:
        _after(agent, line.got)
    return answer


def _task_done(original: Function, agent: Agent, q: Any) -> Any:
    line = _line(q)
    line.done = _merged(line.done, _now(agent))
    return quietly(agent, original, q)


def _join(original: Function, agent: Agent, q: Any) -> Any:
    quietly(agent, original, q)
    _after(agent, _line(q).done)


# -- permits, flags, results -----------------------------------------------------------------------


@dataclass(slots=True)
class _Permits:
    unused: int  # of those that were there at first
    released: deque[Moment] = field(default_factory=deque)


def _permits(semaphore: Any) -> _Permits:
    found: _Permits | None = getattr(semaphore, _STATE, None)
    if found is None:
        found = _Permits(semaphore._value)
        setattr(semaphore, _STATE, found)
    return found


def _acquire(original: Function, agent: Agent, s: Any, *args: Any, **kwargs: Any) -> Any:
    permits = _permits(s)
    taken = quietly(agent, original, s, *args, **kwargs)
    if taken and permits.unused:
        permits.unused -= 1
    elif taken and permits.released:
        _after(agent, permits.released.popleft())
    return taken


def _release(original: Function, agent: Agent, s: Any, n: int = 1) -> Any:
    permits = _permits(s)
    result = quietly(agent, original, s, n)
    permits.released.extend([_now(agent)] * n)
    return result


def _set(original: Function, agent: Agent, event: Any) -> Any:
    if not event._flag:  # once it is set, nobody has to wait for the next one who sets it
        setattr(event, _STATE, _now(agent))
    return quietly(agent, original, event)


def _seen(original: Function, agent: Agent, thing: Any, *args: Any, **kwargs: Any) -> Any:
    """Event.wait and is_set, Future.done: who is told yes comes after it."""
    answer = quietly(agent, original, thing, *args, **kwargs)
    if answer:
        _after(agent, getattr(thing, _STATE, None))
    return answer


def _polled(original: Function, agent: Agent, thing: Any) -> Any:
    """As `_seen`, without blocking: programs ask again and again."""
    agent.baton.tick(agent)
    return _seen(original, agent, thing)


def _give(original: Function, agent: Agent, future: Any, what: Any) -> Any:
    setattr(future, _STATE, _now(agent))
    return quietly(agent, original, future, what)


def _result(original: Function, agent: Agent, future: Any, *args: Any, **kwargs: Any) -> Any:
    try:
        return quietly(agent, original, future, *args, **kwargs)
    finally:
        if future._state == "FINISHED":
            _after(agent, getattr(future, _STATE, None))


def _aloud(original: Function, agent: Agent, *args: Any, **kwargs: Any) -> Any:
    """Callbacks of a future: the program's own code."""
    before, agent.quiet = agent.quiet, 0
    try:
        return original(*args, **kwargs)
    finally:
        agent.quiet = before


def _silent(original: Function, agent: Agent, *args: Any, **kwargs: Any) -> Any:
    """All threads log, and the lock of a handler is nobody's promise."""
    return quietly(agent, original, *args, **kwargs)


@cache
def handing(original: Function, how: Function) -> Function:
    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        agent = current()
        if agent is None:
            return original(*args, **kwargs)
        return how(original, agent, *args, **kwargs)

    return call


def methods(simple: type[Any]) -> Iterator[tuple[Any, str, Function]]:
    """(class, name, replacement). ``simple``: the class that stands for queue.SimpleQueue."""
    table: list[tuple[Any, dict[str, Function]]] = [
        (queue.Queue, {"put": _put, "get": _get, "task_done": _task_done, "join": _join,
                       "qsize": _look, "empty": _look, "full": _look}),
        (threading.Semaphore, {"acquire": _acquire, "__enter__": _acquire, "release": _release}),
        (threading.BoundedSemaphore, {"release": _release}),
        (threading.Event, {"set": _set, "wait": _seen, "is_set": _polled, "isSet": _polled}),
        (concurrent.futures.Future, {
            "set_result": _give, "set_exception": _give, "result": _result, "exception": _result,
            "done": _seen, "_invoke_callbacks": _aloud}),
        (logging.Handler, {"handle": _silent}),
        (logging.Logger, {"isEnabledFor": _silent}),
    ]  # fmt: skip
    for owner, names in table:
        for name, how in names.items():
            yield owner, name, handing(getattr(owner, name), how)
    for name, how in (("put", _put), ("get", _get)):
        yield simple, name, handing(getattr(simple, name), how)
