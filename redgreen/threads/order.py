"""What orders one host thread after another: moments, and who came after which.

A *moment* is what a thread has behind it when it lets something go (releases a lock, starts a
thread, ends): how many steps of itself, and of every thread that it came after. Whoever takes that
thing next comes after all of them. Programs let go of locks thousands of times between two GPU
steps, in an order that may hang on other processes (a DataLoader's workers), so nothing is written
until a *step* depends on it: ``acquired`` is called right before the step of a thread that has come
after new steps of another, and a thread that makes no steps never appears. ``published`` is called
before the next step of a thread that let something go, as somebody may come after that later. A
publication that nobody acquired says nothing: drop those before two traces are compared.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

Key = tuple[int, int]  # (thread, how many steps it had made)
Moment = Mapping[int, int]  # thread -> how many of its steps are behind


class Listener(Protocol):
    """Writes the order of the host threads down. Threads are ints, the main thread is 0."""

    def thread_started(self, thread: int, name: str) -> None:
        """Thread ``thread`` exists from here on; it has not run yet."""

    def published(self, key: Key, thread: int) -> None:
        """Save under ``key`` what ``thread`` has done so far (it may not be the running one)."""

    def acquired(self, key: Key, thread: int) -> None:
        """``thread`` comes after what was published under ``key``."""


class Silent:
    """A listener for programs whose order nobody asks for."""

    def thread_started(self, thread: int, name: str) -> None: ...

    def published(self, key: Key, thread: int) -> None: ...

    def acquired(self, key: Key, thread: int) -> None: ...


class _Line:
    """One thread's program order, as far as others can come after it."""

    def __init__(self) -> None:
        self.steps = 0
        self.published = 0  # steps at the last publication
        self.let_go = False  # since the last step
        self.behind: dict[int, int] = {}  # steps of other threads that this one came after
        self.written: dict[int, int] = {}  # ... as far as ``acquired`` was called for them
        self.moment: Moment | None = None  # made once, dropped when it changes


class Order:
    """Turns releases and acquisitions into the few publications that steps depend on."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._lines: dict[int, _Line] = {}

    def started(self, thread: int, name: str) -> None:
        self._lines[thread] = _Line()
        if thread:
            self._listener.thread_started(thread, name)

    def release(self, thread: int) -> Moment:
        """The moment that is now."""
        line = self._lines[thread]
        line.let_go = True
        if line.moment is None:
            line.moment = {**line.behind, thread: line.steps} if line.steps else dict(line.behind)
        return line.moment

    def acquire(self, thread: int, moment: Moment | None) -> None:
        """``thread`` took what was let go at ``moment``."""
        line = self._lines[thread]
        if not moment or moment is line.moment:
            return
        for other, steps in moment.items():
            if other != thread and line.behind.get(other, 0) < steps:
                line.behind[other] = steps
                line.moment = None

    def step(self, thread: int) -> None:
        """``thread`` is about to make a step."""
        line = self._lines[thread]
        if line.let_go:
            self._publish(thread)
        if line.behind != line.written:
            for other, steps in sorted(line.behind.items()):
                if line.written.get(other, 0) < steps:
                    if self._lines[other].steps == steps:
                        self._publish(other)
                    self._listener.acquired((other, steps), thread)
            line.written = dict(line.behind)
        line.steps += 1
        line.let_go = False
        line.moment = None

    def _publish(self, thread: int) -> None:
        line = self._lines[thread]
        if line.published < line.steps:
            line.published = line.steps
            self._listener.published((thread, line.steps), thread)
