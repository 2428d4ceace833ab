"""A host thread under control, and what the running one knows about itself."""

from __future__ import annotations

import _thread
import enum
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from redgreen.threads.order import Moment
from redgreen.threads.originals import allocate_lock

if TYPE_CHECKING:
    from redgreen.threads.baton import Baton


class Wake(enum.Enum):
    """Why a blocked thread goes on."""

    READY = "ready"  # what it waited for may be there: look again
    TIMEOUT = "timeout"
    IMPATIENT = "impatient"  # held up: the others might do something about it, but did not for long
    FREED = "freed"  # control has ended: go on with the real primitive


class Deadlock(BaseException):
    """No thread can ever run again. Not an ``Exception``: no program handles it by accident."""


class Unwound(SystemExit):
    """Ends the other threads of a deadlock, quietly, when control ends."""


@dataclass(frozen=True, slots=True)
class Due:
    """When a wait runs out.

    Waits are ordered by ``virtual``, which knows nothing of how long computing took, so that two
    recordings agree; ``sequence`` decides between equal ones. ``clock`` is what the program's
    clocks must show at least when it happens.
    """

    virtual: float
    sequence: int
    clock: float


class Agent:
    """One thread. Its gate is a real lock on which it is parked while others run."""

    def __init__(self, baton: Baton, id: int, name: str) -> None:
        self.baton = baton
        self.id = id
        self.name = name
        self.ident = 0  # the interpreter's number, known once it runs
        self.gate = allocate_lock()
        self.gate.acquire()
        self.gate_open = False
        self.granted = False
        self.wake = Wake.READY
        self.waits_for = ""  # for reports
        self.queue: list[Agent] | None = None  # where it is lined up
        self.due: Due | None = None
        self.asleep = False  # with a due: it waits for the time alone
        self.may_go_on: Callable[[], bool] | None = None  # held up: can it go on by now?
        self.patience = 0  # held up: how much more the others may do about it
        self.held_until = 0.0  # held up: the virtual time up to which others may wait
        self.error: BaseException | None = None  # raised where it is blocked
        self.quiet = 0  # inside of something whose locks order nothing (`handover`)
        self.operations = 0  # since it last blocked
        self.outside = False  # in a call that really blocks, or uncontrolled for good
        self.finished = False
        self.joiners: list[Agent] = []
        self.started_at: Moment | None = None
        self.ended_at: Moment | None = None


class _Here(_thread._local):
    agent: Agent | None = None


_here = _Here()


class _Installed:
    """Which baton the process has; here because locks, which control imports, ask for it."""

    baton: Baton | None = None


installed = _Installed()


def enter(agent: Agent | None) -> None:
    """This thread is ``agent`` from now on."""
    _here.agent = agent


def current() -> Agent | None:
    """The running thread, if control is on and it is under control at this moment."""
    agent = _here.agent
    if agent is None or agent.outside or not agent.baton.live:
        return None
    return agent


def current_or_outside() -> Agent | None:
    """As ``current``, also inside a call that really blocks."""
    agent = _here.agent
    return agent if agent is not None and agent.baton.live else None
