"""What the tests of host threads share: a listener that keeps a log, and a watched run."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from typing import Any

from redgreen.threads import Chooser, Control, Watchdog, current_agent


class Log:
    """Order events and the program's own steps, in one list."""

    def __init__(self) -> None:
        self.events: list[tuple[Any, ...]] = []
        self.control: Control | None = None

    def thread_started(self, thread: int, name: str) -> None:
        self.events.append(("start", thread, name))

    def published(self, key: tuple[int, int], thread: int) -> None:
        self.events.append(("publish", key, thread))

    def acquired(self, key: tuple[int, int], thread: int) -> None:
        self.events.append(("acquire", key, thread))

    def step(self, what: Any) -> None:
        assert self.control is not None
        self.control.step()
        self.events.append(("step", what, current_agent()))

    def essential(self) -> list[tuple[Any, ...]]:
        """The events without the publications that nobody acquired."""
        acquired = {event[1] for event in self.events if event[0] == "acquire"}
        return [e for e in self.events if e[0] != "publish" or e[1] in acquired]

    def ordered(self, first: Any, second: Any) -> bool:
        """Does the log order step ``first`` before step ``second``?"""
        clocks: dict[int, dict[int, int]] = {}
        saved: dict[Any, dict[int, int]] = {}
        at: dict[Any, tuple[int, int, dict[int, int]]] = {}
        for kind, what, thread in self.events:
            mine = clocks.setdefault(thread, {})
            if kind == "publish":
                saved[what] = dict(mine)
            elif kind == "acquire":
                for other, count in saved.get(what, {}).items():
                    mine[other] = max(mine.get(other, 0), count)
            elif kind == "step":
                mine[thread] = mine.get(thread, 0) + 1
                at[what] = (thread, mine[thread], dict(mine))
        thread, count, _ = at[first]
        return at[second][2].get(thread, 0) >= count


def watched(
    program: Callable[[Log], Any], chooser: Chooser | None = None, seconds: float = 20
) -> tuple[Log, Any]:
    """Run ``program`` under control; a run that hangs ends the process and says where."""
    log = Log()
    log.control = Control(log, chooser)
    with log.control, Watchdog(log.control, seconds, _die):
        result = program(log)
        log.control.freeze()
    return log, result


def _die(reason: str, stacks: str) -> None:
    print(reason, stacks, file=sys.__stderr__, flush=True)
    os._exit(3)
