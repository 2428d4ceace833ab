"""Virtual time.

The program's clocks show real time plus ``advance``, the waits that were skipped: a loop that runs
until ``time.monotonic()`` reaches a deadline ends, whether it computes or waits. They are not made
reproducible on purpose: the output of a program that depends on a clock *is* undecided, and
comparing two recordings must find that, not hide it.

``now`` is a second time that only waits move. It decides the order in which waits run out, so that
the order does not depend on how long the machine took to compute between them.
"""

from __future__ import annotations

import itertools

from redgreen.threads.agent import Due
from redgreen.threads.originals import monotonic


class Clock:
    def __init__(self) -> None:
        self.now = 0.0
        self.advance = 0.0
        self._sequence = itertools.count()

    def due(self, seconds: float) -> Due:
        """When a wait of ``seconds`` that begins now runs out."""
        seconds = max(seconds, 0.0)
        return Due(self.now + seconds, next(self._sequence), self._shown() + seconds)

    def skip_to(self, due: Due) -> None:
        """A wait ran out: both times are at least there."""
        self.now = max(self.now, due.virtual)
        self.advance += max(0.0, due.clock - self._shown())

    def left(self, due: Due) -> float:
        """Real seconds until the program's clocks show ``due`` by themselves."""
        return due.clock - self._shown()

    def _shown(self) -> float:
        return monotonic() + self.advance
