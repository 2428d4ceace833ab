"""The replacements for what starts, joins, sleeps and reads clocks.

Each falls through to the original where the calling thread is not under control.
"""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from functools import wraps
from typing import TYPE_CHECKING, Any

from redgreen.threads import originals
from redgreen.threads.agent import Agent, Wake, current, enter
from redgreen.threads.outside import outside

if TYPE_CHECKING:
    from redgreen.threads.control import Control

Function = Callable[..., Any]

thread_start = threading.Thread.start
thread_join = threading.Thread.join
thread_is_alive = threading.Thread.is_alive


class SimpleQueue(queue._PySimpleQueue):  # type: ignore[name-defined,misc]
    """The pure Python one, which is built on locks, in place of the C one, which blocks."""


def sleep(seconds: float) -> None:
    agent = current()
    if agent is None or not seconds >= 0:  # the original raises what it raises
        originals.sleep(seconds)
        return
    agent.baton.tick(agent)
    if seconds == 0:
        agent.baton.give_way(agent)
        return
    due = agent.baton.clock.due(seconds)
    if agent.baton.block(agent, [], due, f"sleeps {seconds:g} s", asleep=True) is Wake.FREED:
        originals.sleep(max(0.0, agent.baton.clock.left(due)))


def start_new_thread(control: Control) -> Function:
    @wraps(originals.start_new_thread)
    def start(function: Function, args: Any, kwargs: dict[str, Any] | None = None) -> int:
        parent = current()
        if parent is None:
            return originals.start_new_thread(function, args, kwargs or {})
        agent = _new_agent(parent, function)
        ident = originals.start_new_thread(_run, (control, agent, function, args, kwargs or {}))
        agent.baton.launch(agent)
        return ident

    return start


def start_joinable_thread(control: Control) -> Function:
    original = originals.start_joinable_thread

    def start(function: Function, handle: Any = None, daemon: bool = True) -> Any:
        assert original is not None
        parent = current()
        if parent is None:
            return original(function, handle=handle, daemon=daemon)
        agent = _new_agent(parent, function)
        result = original(
            lambda: _run(control, agent, function, (), {}), handle=handle, daemon=daemon
        )
        agent.baton.launch(agent)
        return result

    return start


def _new_agent(parent: Agent, function: Function) -> Agent:
    thread = getattr(function, "__self__", None)
    baton = parent.baton
    if isinstance(thread, threading.Thread):
        agent = baton.add(thread.name)
        thread._redgreen_agent = agent  # type: ignore[attr-defined]
    else:
        agent = baton.add(f"thread-{len(baton.agents)}")
    agent.started_at = baton.order.release(parent.id)
    return agent


def _run(control: Control, agent: Agent, function: Function, args: Any, kwargs: Any) -> None:
    """The whole life of a controlled thread."""
    agent.ident = originals.get_ident()
    agent.baton.park(agent)
    agent.baton.guests.discard(agent.ident)  # the number may have been another thread's before
    enter(agent)
    try:
        if agent.error is not None:
            raise agent.error
        if agent.baton.live:
            agent.baton.order.acquire(agent.id, agent.started_at)
            for hook in control.on_start:
                hook()
        function(*args, **kwargs)
    finally:
        agent.baton.finish(agent)


def start(thread: threading.Thread) -> None:
    if current() is not None and not thread._started.is_set():  # type: ignore[attr-defined]
        # The thread object may be older than control: what start waits for must be controlled.
        thread._started = threading.Event()  # type: ignore[attr-defined]
    thread_start(thread)


def join(thread: threading.Thread, timeout: float | None = None) -> None:
    agent = current()
    other: Agent | None = getattr(thread, "_redgreen_agent", None)
    if agent is None or other is agent:
        thread_join(thread, timeout)
        return
    if other is None or other.baton is not agent.baton:
        with outside():  # a thread from before control
            thread_join(thread, timeout)
        return
    baton = agent.baton
    baton.tick(agent)
    due = None if timeout is None else baton.clock.due(timeout)
    while not other.finished:
        if timeout is not None and timeout <= 0:
            return
        why = baton.block(agent, other.joiners, due, f"joins thread {other.id} {other.name!r}")
        if why is Wake.FREED:
            thread_join(thread, None if due is None else baton.clock.left(due))
            return
        if why is Wake.TIMEOUT and not other.finished:
            return
    baton.order.acquire(agent.id, other.ended_at)
    thread_join(thread)  # it has nothing left to do but to end


def is_alive(thread: threading.Thread) -> bool:
    agent = current()
    other: Agent | None = getattr(thread, "_redgreen_agent", None)
    if agent is None or other is None or other.baton is not agent.baton:
        return thread_is_alive(thread)
    agent.baton.tick(agent)
    if not other.finished:
        return True
    agent.baton.order.acquire(agent.id, other.ended_at)
    thread_join(thread)
    return False


def clock(control: Control, name: str) -> Function:
    """``time.<name>``, with the skipped waits added."""
    original: Function = getattr(time, name)
    virtual = control.baton.clock
    whole = name.endswith("_ns")  # a float would lose the last digits

    @wraps(original)
    def read() -> Any:
        skipped = virtual.advance
        return original() + (int(skipped * 1_000_000_000) if whole else skipped)

    return read
