"""Lock and RLock as controlled threads see them; conditions, events and queues are built on them.

Each holds a real lock, and the real lock is the truth: a controlled thread only ever tries it, and
blocks in the baton when it is taken. So a lock keeps working for uncontrolled threads and after
control has ended, and one that was made before can be adopted by wrapping it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from redgreen.threads import originals
from redgreen.threads.agent import Agent, Wake, current, current_or_outside, installed
from redgreen.threads.order import Moment


class Lock:
    """Stands for ``threading.Lock()``."""

    _what = "a lock"
    _make: Callable[[], Any] = staticmethod(originals.allocate_lock)

    def __init__(self, real: Any = None) -> None:
        self._real = self._make() if real is None else real
        self._queue: list[Agent] = []
        self.released_at: Moment | None = None

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        agent = current()
        if agent is None:
            _note_guest()
            return bool(self._real.acquire(blocking, timeout))
        agent.baton.tick(agent)
        if timeout != -1:
            _check_arguments(blocking, timeout)
        taken = self._real.acquire(False)
        if not taken and blocking and timeout != 0:
            taken = self._wait(agent, None if timeout == -1 else timeout)
        if taken and not agent.quiet:
            agent.baton.order.acquire(agent.id, self.released_at)
        return bool(taken)

    def _wait(self, agent: Agent, seconds: float | None) -> bool:
        baton = agent.baton
        due = None if seconds is None else baton.clock.due(seconds)
        while True:
            why = baton.block(agent, self._queue, due, f"waits for {self._what}")
            if why is Wake.FREED:
                left = -1.0 if due is None else max(0.0, baton.clock.left(due))
                return bool(self._real.acquire(True, left))
            if self._real.acquire(False):
                return True
            if why is Wake.TIMEOUT:
                return False

    def release(self) -> None:
        agent = current()
        if agent is not None:
            self.released_at = agent.baton.order.release(agent.id)
            self._real.release()
            if self._queue:
                agent.baton.wake(self._queue)
            return
        self.released_at = None  # by whom, no order knows
        self._real.release()
        if self._queue:
            _note_guest()
            self._queue[0].baton.wake(self._queue)

    def locked(self) -> bool:
        return bool(self._real.locked())

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def _at_fork_reinit(self) -> None:
        self._real._at_fork_reinit()
        self._queue = []
        self.released_at = None

    def __repr__(self) -> str:
        return f"<redgreen {self._what} around {self._real!r}>"


class RLock(Lock):
    """Stands for ``threading.RLock()``."""

    _what = "a reentrant lock"
    _make: Callable[[], Any] = staticmethod(originals.RLockType)

    def _is_owned(self) -> bool:
        return bool(self._real._is_owned())

    def _recursion_count(self) -> int:
        return int(self._real._recursion_count())

    def _release_save(self) -> Any:  # Condition.wait: release however often it was acquired
        agent = current()
        self.released_at = None if agent is None else agent.baton.order.release(agent.id)
        state = self._real._release_save()
        if self._queue:
            self._queue[0].baton.wake(self._queue)
        return state

    def _acquire_restore(self, state: Any) -> None:
        self.acquire()
        self._real.release()  # nobody else runs in between
        self._real._acquire_restore(state)


def _check_arguments(blocking: bool, timeout: float) -> None:
    originals.allocate_lock().acquire(blocking, timeout)  # raises for what no lock accepts


def _note_guest() -> None:
    if installed.baton is not None and current_or_outside() is None:
        installed.baton.guest()
