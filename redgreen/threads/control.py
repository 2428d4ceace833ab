"""Control over the host threads of one run.

    with Control(listener=trace) as control:
        control.on_thread(prepare)
        output = subject()
        control.freeze()         # threads that still live take no further step
        ...                      # hand the output over, in a forked child: os._exit
    # every remaining thread goes on uncontrolled, with real locks and real time

The thread that enters is the main thread, number 0. Control may be installed in a forked child; a
process that the subject itself forks (a DataLoader worker) is not under control.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from redgreen.threads import install
from redgreen.threads.agent import Agent, Deadlock, current, current_or_outside, enter, installed
from redgreen.threads.baton import Baton, Chooser, FirstCome
from redgreen.threads.order import Listener, Order, Silent
from redgreen.threads.originals import get_ident
from redgreen.threads.stacks import describe_all

_active: Control | None = None


class Control:
    def __init__(self, listener: Listener | None = None, chooser: Chooser | None = None) -> None:
        self._order = Order(listener or Silent())
        self.baton = Baton(self._order, chooser or FirstCome())
        self.on_start: list[Callable[[], None]] = []
        self._patches = install.Patches(self)

    def __enter__(self) -> Control:
        global _active
        if _active is not None:
            raise RuntimeError("host threads are already under control")
        self.baton.agents[0].ident = get_ident()
        enter(self.baton.agents[0])
        _active = self
        installed.baton = self.baton
        try:
            self._patches.apply()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *error: object) -> None:
        global _active
        self.baton.stop()
        self._patches.undo()
        _active = installed.baton = None
        enter(None)

    def on_thread(self, hook: Callable[[], None]) -> None:
        """Call ``hook`` in each new controlled thread before anything else runs in it."""
        self.on_start.append(hook)

    def step(self) -> None:
        """The running thread is about to make a step. Call this before a step is written."""
        agent = current_or_outside()
        if agent is not None:
            self._order.step(agent.id)
            if not agent.outside:
                self.baton.tick(agent)

    def hold_up(self, may_go_on: Callable[[], bool], what: str) -> bool | None:
        """The running thread cannot go on unless others do something first: they run until
        ``may_go_on`` (which is asked in any thread). False: they never can. None: they did not for
        so long that they are not waited for any more.
        """
        agent = current()
        return False if agent is None else agent.baton.hold_up(agent, may_go_on, what)

    def freeze(self) -> None:
        """The subject has returned: the other threads stay where they are until control ends.

        Call it in the main thread; whatever it does next (writing the outcome to a pipe) lets
        nobody else run.
        """
        self.baton.freeze()

    def alive(self) -> list[str]:
        """Names of the threads that have not ended; the main thread is not among them."""
        return [agent.name for agent in self.baton.alive()]

    @property
    def uncontrolled(self) -> list[str]:
        """What happened that no order knows: reasons to say ``inconclusive``."""
        return self.baton.uncontrolled

    @property
    def deadlock(self) -> Deadlock | None:
        """The first deadlock of the run, also if the program swallowed it."""
        return self.baton.deadlock

    def agents(self) -> list[Agent]:
        return self.baton.agents

    def stacks(self) -> str:
        return describe_all(self.baton.agents)


def active() -> Control | None:
    """The control that is installed in this process."""
    return _active


def current_agent() -> int:
    """The running thread's number: 0 is main (also without control), -1 is not under control."""
    if _active is None:
        return 0
    agent = current_or_outside()
    return -1 if agent is None else agent.id


def _after_fork() -> None:
    """A process that the subject forked: the patches stay, and fall through to the real."""
    global _active
    if _active is not None:
        _active.baton.live = False
        _active = installed.baton = None
        enter(None)


os.register_at_fork(after_in_child=_after_fork)
