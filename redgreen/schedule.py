"""Which legal order the steps of a run actually take.

A schedule is a policy for the device, refined by explicit orders between steps and by answers to
choices. Steps are named by label, so that a schedule survives small edits of the program.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

Policy = Literal["serial", "lazy", "first", "last", "random"]


@dataclass(frozen=True, slots=True)
class Order:
    """``second`` may not execute before ``first`` has ("hold second until first")."""

    first: str  # step labels
    second: str


@dataclass(frozen=True, slots=True)
class Schedule:
    """How a run is to be ordered.

    serial: each device step executes as soon as it is issued. lazy: nothing executes before the
    host waits for it. first/last: ``stream`` (an agent's name) as soon as possible and the others
    lazily / lazily and the others as soon as possible. random: a seeded draw at each host step.
    """

    policy: Policy = "serial"
    stream: str = ""
    seed: int = 0
    orders: tuple[Order, ...] = ()
    choices: tuple[tuple[str, bool], ...] = field(default=())  # label of the choice, answer

    def __str__(self) -> str:
        text = {"first": f"first {self.stream}", "last": f"last {self.stream}",
                "random": f"random {self.seed}"}.get(self.policy, self.policy)
        parts = [text, *(f"hold {o.second} until {o.first}" for o in self.orders)]
        parts += [f"answer {label} {'yes' if yes else 'no'}" for label, yes in self.choices]
        return ", ".join(parts)


SERIAL = Schedule()
LAZY = Schedule(policy="lazy")
