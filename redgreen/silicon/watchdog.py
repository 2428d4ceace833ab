"""Opens every gate of a run in which nothing happens any more.

A closed gate can hold up what the recorder knows nothing of: a kernel that is loaded at its first
use, an allocation that waits for the device, a library's own synchronization. Then the host never
comes to the step that would open the gate. This thread notices that no step was made for a while,
opens all gates so that the host goes on, and the run has no outcome: stuck.
"""

from __future__ import annotations

from collections.abc import Callable

from ..threads import originals  # by attribute: names bound here would be exchanged

LOOKS = 8  # in the time after which it fires


class Stuck(BaseException):
    """Nothing happened for too long. Not an Exception: programs swallow those."""


class Watchdog:
    """``progress`` counts what happens; the same number for ``seconds`` means that nothing does."""

    def __init__(
        self, seconds: float, progress: Callable[[], int], fire: Callable[[], None]
    ) -> None:
        self.seconds = seconds
        self.fired = ""  # why, once it has
        self.calling = ""  # what the recorder is about to call, for the message
        self._progress, self._fire = progress, fire
        self._stop = originals.allocate_lock()  # held while watching
        self._ended = originals.allocate_lock()

    def start(self, private: set[int]) -> None:
        """``private``: idents of threads that host-thread control leaves alone."""
        self._stop.acquire()
        self._ended.acquire()
        originals.start_new_thread(self._watch, (private,))

    def stop(self) -> None:
        self._stop.release()
        self._ended.acquire()
        self._ended.release()

    def _watch(self, private: set[int]) -> None:
        private.add(originals.get_ident())
        try:
            last, idle = self._progress(), 0
            while not self._stop.acquire(True, self.seconds / LOOKS):
                now = self._progress()
                idle = idle + 1 if now == last else 0
                last = now
                if idle >= LOOKS and not self.fired:
                    self.fired = self.message()
                    self._fire()
            self._stop.release()
        finally:
            private.discard(originals.get_ident())
            self._ended.release()

    def message(self) -> str:
        where = f" inside {self.calling}" if self.calling else ""
        return (f"nothing happened{where} for {self.seconds:g} s while gates held streams, so all "
                "gates were opened; if the program only computes on the host for that long, allow "
                "more with --timeout")
