"""What orders one host thread after another: moments, and who came after which.

A *moment* is a point in a thread's program order at which it let something go (released a lock,
started a thread, ended). Whoever takes that thing next comes after the moment. Programs let go of
locks thousands of times between two GPU steps, and all moments between two steps are the same to
the trace, so a moment is published only when it matters: right before the thread's next step, or
when another thread first comes after it. ``step`` must be called before every step is written.
"""

from __future__ import annotations

from typing import Protocol

Moment = tuple[int, int]  # (thread, ordinal): also the key that is published and acquired


class Listener(Protocol):
    """Writes the order of the host threads down. Threads are ints, the main thread is 0."""

    def thread_started(self, thread: int, name: str) -> None:
        """Thread ``thread`` exists from here on; it has not run yet."""

    def published(self, key: Moment, thread: int) -> None:
        """Save under ``key`` what ``thread`` has done so far (it may not be the running one)."""

    def acquired(self, key: Moment, thread: int) -> None:
        """``thread`` comes after what was published under ``key``."""


class Silent:
    """A listener for programs whose order nobody asks for."""

    def thread_started(self, thread: int, name: str) -> None: ...

    def published(self, key: Moment, thread: int) -> None: ...

    def acquired(self, key: Moment, thread: int) -> None: ...


class _Line:
    """One thread's program order, as far as others can come after it."""

    def __init__(self) -> None:
        self.ordinal = 0  # of the next moment to be published
        self.stepped = False  # a step was made since the last published moment
        self.let_go = False  # ... and something was let go after it
        self.seen: dict[int, int] = {}  # thread -> newest moment of it that this one came after


class Order:
    """Turns releases and acquisitions into the few moments that the trace needs."""

    def __init__(self, listener: Listener) -> None:
        self._listener = listener
        self._lines: dict[int, _Line] = {}

    def started(self, thread: int, name: str) -> None:
        self._lines[thread] = _Line()
        if thread:
            self._listener.thread_started(thread, name)

    def step(self, thread: int) -> None:
        """``thread`` is about to make a step."""
        line = self._lines[thread]
        if line.let_go:
            self._publish(thread)
        line.stepped = True

    def release(self, thread: int) -> Moment | None:
        """The moment that is now; None if the thread has done nothing that others could see."""
        line = self._lines[thread]
        if line.stepped:
            line.let_go = True
            return (thread, line.ordinal)
        return (thread, line.ordinal - 1) if line.ordinal else None

    def acquire(self, thread: int, moment: Moment | None) -> None:
        """``thread`` took what was let go at ``moment``."""
        if moment is None or moment[0] == thread:
            return
        other, ordinal = moment
        line = self._lines[thread]
        if line.seen.get(other, -1) >= ordinal:
            return
        line.seen[other] = ordinal
        if self._lines[other].ordinal == ordinal:
            self._publish(other)
        self.step(thread)  # coming after something is a step: what is let go next includes it
        self._listener.acquired(moment, thread)

    def _publish(self, thread: int) -> None:
        line = self._lines[thread]
        self._listener.published((thread, line.ordinal), thread)
        line.ordinal += 1
        line.stepped = line.let_go = False
