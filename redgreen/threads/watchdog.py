"""Ends a run that something outside control holds up.

A real thread looks at the baton. If nothing happened for ``seconds``, or the run lasts longer than
``total``, it calls back once with a sentence and every thread's stack, as text; the caller decides
(a forked child writes its outcome, ``inconclusive``, and leaves with ``os._exit``). Threads do not
survive a fork: start it in the process that it watches. It cannot run while a C call keeps the
interpreter lock, so the parent of a child needs a time limit of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from redgreen.threads.control import Control
from redgreen.threads.originals import allocate_lock, get_ident, monotonic, start_new_thread


class Watchdog:
    def __init__(
        self,
        control: Control,
        seconds: float,
        callback: Callable[[str, str], None],
        total: float = float("inf"),
    ) -> None:
        self.fired: str | None = None
        self._control = control
        self._seconds = seconds
        self._total = total
        self._callback = callback
        self._stop = allocate_lock()  # held while watching
        self._ended = allocate_lock()  # held while the thread lives

    def __enter__(self) -> Watchdog:
        self._stop.acquire()
        self._ended.acquire()
        start_new_thread(self._watch, ())
        return self

    def __exit__(self, *error: object) -> None:
        self._stop.release()
        self._ended.acquire()
        self._ended.release()

    def _watch(self) -> None:
        baton = self._control.baton
        baton.private.add(get_ident())
        try:
            begin = last = monotonic()
            progress = baton.progress
            while not self._stop.acquire(True, max(0.01, self._wait(begin, last))):
                now = monotonic()
                if baton.progress != progress:
                    progress, last = baton.progress, now
                if now - last >= self._seconds:
                    self._fire(f"no controlled thread did anything for {self._seconds:g} s")
                    return
                if now - begin >= self._total:
                    self._fire(f"the run took longer than {self._total:g} s")
                    return
            self._stop.release()
        finally:
            baton.private.discard(get_ident())
            self._ended.release()

    def _wait(self, begin: float, last: float) -> float:
        now = monotonic()
        return min(last + self._seconds - now, begin + self._total - now, self._seconds / 4)

    def _fire(self, reason: str) -> None:
        self.fired = reason
        self._callback(reason, self._control.stacks())
