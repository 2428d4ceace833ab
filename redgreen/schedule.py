"""Which legal order the steps of a run actually take.

A schedule is a policy for the device, refined by explicit orders between steps and by answers to
choices. Steps are named by label, so that a schedule survives small edits of the program.

What a backend does with it:

* After every host step (each enqueue is one) the policy is asked which device steps execute now.
  A device step can execute when it is at the head of its stream, what it waits for has executed,
  and every Order that names it as ``second`` has seen its ``first``.
* A host step that waits executes what it waits for and what that needs, no more, oldest first.
  What that needs includes the ``first`` of an Order, if it has been issued.
* A host step that is the ``second`` of an Order executes its ``first`` before itself, if issued.
* An Order is *broken*, reported in ``Run.broken`` and from then on ignored, only when the host is
  blocked and cannot go on otherwise: its ``first`` has not been issued, or lies behind ``second``.
  An Order whose ``second`` never comes is not broken; nothing was held.
* A choice is answered truthfully: has what it asks about executed? An answer in ``choices`` decides
  before that: *yes* executes it first; *no* is kept only if it has not executed yet (the explorer
  adds an Order that holds it until the choice). Fruitless polls end after a few, by progress.
* A host thread makes no call that is the ``second`` of one of ``calls`` before its ``first`` has
  been issued: the other threads go on. When none of them ever can, the order is broken; when they
  only did not for long, it is given up (``Run.given_up``) as well.
* A device step in ``torn`` executes in two parts; Orders name the first by `begin` of its label.
* When the subject is done the rest executes, so that ``Trace.execution`` has every step.
"""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import Literal

Policy = Literal["serial", "lazy", "first", "last", "random", "late", "pct"]


@dataclass(frozen=True, slots=True)
class Order:
    """``second`` may not execute before ``first`` has ("hold second until first")."""

    first: str  # step labels
    second: str


@dataclass(frozen=True, slots=True)
class Torn:
    """A device step that executes in two parts, as `redgreen.tears` says."""

    step: str  # its label
    how: Literal["split", "stale"]


def begin(label: str) -> str:
    """What Orders call the first part of a torn step."""
    return f"{label}/begin"


@dataclass(frozen=True, slots=True, repr=False)
class Schedule:
    """How a run is to be ordered.

    serial: each device step executes as soon as it is issued. lazy: nothing executes before the
    host waits for it. first/last: ``stream`` (an agent's name) as soon as possible and the others
    lazily / lazily and the others as soon as possible. random: a seeded draw at each host step.
    late: serial, but for the accesses in ``late`` (the n-th that is issued to a stream, from 0):
    these and what comes after them on their streams execute when the host waits for them.
    pct: each agent has a priority drawn by the seed, and what has more than the host executes
    first; at the host steps in ``late`` whoever is in front falls behind all (Burckhardt et al., A
    Randomized Scheduler with Probabilistic Guarantees of Finding Bugs, 2010).
    """

    policy: Policy = "serial"
    stream: str = ""
    seed: int = 0
    orders: tuple[Order, ...] = ()
    choices: tuple[tuple[str, bool], ...] = field(default=())  # label of the choice, answer
    torn: tuple[Torn, ...] = ()
    late: tuple[int, ...] = ()
    calls: tuple[Order, ...] = ()  # of calls of host threads

    def __repr__(self) -> str:
        given = [(f.name, getattr(self, f.name)) for f in fields(self)]
        said = [f"{name}={value!r}" for name, value in given if value or name == "policy"]
        return f"Schedule({', '.join(said)})"

    def __str__(self) -> str:
        text = {"first": f"first {self.stream}", "last": f"last {self.stream}",
                "random": f"random {self.seed}",
                "pct": f"pct {self.seed} changing at {' '.join(map(str, self.late))}",
                "late": f"late {' '.join(map(str, self.late))}"}.get(self.policy, self.policy)
        parts = [text, *(f"hold {o.second} until {o.first}" for o in self.orders)]
        parts += [f"call {o.second} after {o.first}" for o in self.calls]
        parts += [f"answer {label} {'yes' if yes else 'no'}" for label, yes in self.choices]
        parts += [f"{torn.how} {torn.step}" for torn in self.torn]
        return ", ".join(parts)


SERIAL = Schedule()
LAZY = Schedule(policy="lazy")
