"""Gates on streams: each device step waits for its own word, and says with another that it is done.

The stream executes ``wait(go)``, the step, ``write(done)``. The host decides when the step runs by
setting ``go``, and knows that it has run when it sees ``done``; a step whose ``done`` is not set
while another one's is has observably been held. Words of a finished step are used again; those of
captured steps belong to their graph, which waits for the same words at every launch.
"""

from __future__ import annotations

from collections import deque

from ..threads import originals
from .driver import Driver
from .watchdog import Stuck, Watchdog

SIZE = 1 << 16  # steps that can be pending or captured at a time
SPINS = 2000  # looks at a word between two looks at everything else


class DeviceFailed(RuntimeError):
    """The context has a sticky error: no later step will ever be done."""


class Gate:
    """A step that waits."""

    __slots__ = ("captured", "place", "stream")

    def __init__(self, place: int, stream: int, captured: bool) -> None:
        self.place, self.stream, self.captured = place, stream, captured


class Gates:
    """All gates of a run. With ``held`` False nothing waits: for the warm-up."""

    def __init__(self, driver: Driver, held: bool = True, size: int = SIZE) -> None:
        self._driver, self._held, self._size = driver, held, size
        self._words = driver.words  # go of gate i at 2 i, its done at 2 i + 1
        self._free = deque(range(size))
        self.watchdog: Watchdog | None = None
        self.capturing = False  # asking a stream how it is would break a capture
        self.opened = 0  # counts; the watchdog looks at it

    def close(self, stream: int, captured: bool = False) -> Gate:
        """What is enqueued on ``stream`` from now on waits."""
        gate = Gate(self._take(), stream, captured)
        self._clear(gate)
        if self._held:
            self._driver.wait(stream, 2 * gate.place)
        return gate

    def _take(self) -> int:
        if not self._free:
            raise RuntimeError(f"more than {self._size} device steps are pending or captured")
        return self._free.popleft()

    def mark(self, gate: Gate) -> None:
        """The step is all that was enqueued since `close`."""
        if self._held:
            self._driver.write(gate.stream, 2 * gate.place + 1)

    def milestone(self, stream: int) -> Gate:
        """No gate: says when what is enqueued so far is done."""
        gate = Gate(self._take(), stream, False)
        self._clear(gate)
        self.mark(gate)
        return gate

    def reset(self, gates: list[Gate]) -> None:
        """Close the gates of a graph for its next launch; the last one is over."""
        for gate in gates:
            self._clear(gate)

    def _clear(self, gate: Gate) -> None:
        # The watchdog may have opened all; then nothing may be closed any more.
        is_open = self.watchdog is not None and bool(self.watchdog.fired)
        self._words[2 * gate.place] = int(is_open)
        self._words[2 * gate.place + 1] = 0

    def open(self, gate: Gate) -> None:
        self.opened += 1
        self._words[2 * gate.place] = 1

    def done(self, gate: Gate) -> bool:
        """Has the device written so?"""
        return bool(self._words[2 * gate.place + 1])

    def pass_through(self, gate: Gate) -> None:
        """Open it and wait until the step is done."""
        self.open(gate)
        if self._held:
            self._wait(gate)
        if not gate.captured:
            self._free.append(gate.place)

    def _wait(self, gate: Gate) -> None:
        words, place = self._words, 2 * gate.place + 1
        while True:
            for _ in range(SPINS):
                if words[place]:
                    return
            self.check()
            if not self.capturing:
                error = self._driver.failed(gate.stream)
                if error and not words[place]:
                    raise DeviceFailed(error)
            originals.sleep(0)  # others want the interpreter

    def check(self) -> None:
        """Stuck if the watchdog has opened the gates."""
        if self.watchdog is not None and self.watchdog.fired:
            raise Stuck(self.watchdog.fired)

    def open_all(self) -> None:
        """At the end, or when the watchdog fires."""
        for place in range(self._size):
            self._words[2 * place] = 1
