"""Who goes first under the policy ``pct``."""

from __future__ import annotations

import random
from collections.abc import Iterable

from ..schedule import Schedule

HOST = -1  # all host threads: redgreen.threads decides which of them runs


class Priorities:
    """One number for each stream and one for the host; the larger goes first."""

    def __init__(self, schedule: Schedule) -> None:
        self._seed, self._changes = schedule.seed, frozenset(schedule.late)
        self._numbers: dict[int, float] = {}
        self._steps = 0
        self._lowest = 0.0

    def of(self, agent: int) -> float:
        """Drawn for the agent alone, so that it does not depend on who was asked for before."""
        number = self._numbers.get(agent)
        if number is None:
            number = random.Random(f"{self._seed} {agent}").random()
            self._numbers[agent] = number
        return number

    def in_front(self, agent: int) -> bool:
        return self.of(agent) > self.of(HOST)

    def step(self, agents: Iterable[int]) -> None:
        """One more host step; at a change the foremost agent falls behind all others."""
        if self._steps in self._changes:
            self._lowest -= 1.0
            self._numbers[max([HOST, *agents], key=self.of)] = self._lowest
        self._steps += 1
