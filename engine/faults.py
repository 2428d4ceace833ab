"""Named fault points: each removes or breaks one mechanism where it is used.

An engine without faults asks an empty set and does nothing else.
"""

from __future__ import annotations

from collections import Counter

from .errors import ConfigError

POINTS = {
    "E01.combine-host-ids": "decode reads the placeholders that the host has, not the device's ids",
    "E03.skip-row-moves": "rows of the mirror stay where they were",
    "E05.skip-drain": "the host reads sampled ids without waiting for MAIN",
    "E06.skip-drain": "the host refills step inputs without waiting for MAIN",
    "E07.always-skip": "the drain is skipped after any step",
    "E08.skip-record": "the input-staged event is never recorded",
    "E08.skip-wait": "staging is refilled without waiting for the input-staged event",
    "E08.poison": "staged sources are zeroed, over their capacity, after their copies are enqueued",
    "E13.collapse": "one slot serves both sides of the ring",
    "E35.live-padding": "inert rows write to page 0 and state 0",
    "E42.skip-wait": "the output copy does not wait for the sampler",
    "E43.skip-record": "the ready event is never recorded",
    "E43.skip-wait": "the host reads sampled ids before their copy is done",
    "E44.one-slot": "an output slot is handed out although its output has not been read",
    "E45.skip-wait": "an output that is given up frees its slot while the copy may be running",
    "E47.skip-wait": "penalties read the last ids before their copy is done",
    "E53.keep-state": "a new owner of a state slot finds the old owner's state",
}


class Faults:
    """The points that are broken in one engine."""

    def __init__(self, *names: str) -> None:
        """Raises ConfigError for a name that is no point."""
        unknown = [name for name in names if name not in POINTS]
        if unknown:
            raise ConfigError(f"no fault point {unknown[0]}; the points are {', '.join(POINTS)}")
        self._names = frozenset(names)
        self.hits: Counter[str] = Counter()

    def hit(self, name: str) -> bool:
        """Whether ``name`` is broken here and now; counts it if so."""
        if name not in self._names:
            return False
        self.hits[name] += 1
        return True
