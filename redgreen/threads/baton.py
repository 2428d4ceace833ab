"""The baton: exactly one controlled thread runs, and it hands over only where it blocks.

Who runs next, in this order:

1. a runnable thread, first come first served (or as the chooser says);
2. a thread that was held up by something that others had to do, and that they have done;
3. a thread that is back from a call outside control, the lowest number first: only when nothing
   else can run, because *when* it came back is not reproducible;
4. with threads still outside: nobody, until one is back or real time has reached the earliest due;
5. the thread whose wait runs out first: virtual time jumps there;
6. nobody can ever run: ``Deadlock`` is raised in the main thread.

A thread that is held up can always go on, at a price: it is told so instead of 4 and 6, and after
so many rounds of 5 (others may be polling for what only it can do).
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import Protocol

from redgreen.threads.agent import Agent, Deadlock, Due, Unwound, Wake
from redgreen.threads.clock import Clock
from redgreen.threads.order import Order
from redgreen.threads.originals import get_ident
from redgreen.threads.section import Section
from redgreen.threads.stacks import describe

# A thread that operates on locks this often without ever blocking is taken to poll for something:
# it lets others run, and is charged for the time, or what it polls for might never come.
SPIN = 1000
SPIN_SECONDS = 0.05
HELD_SECONDS = 1.0  # of virtual time: waits that run out later are for failures, not for polling
PATIENCE = 16  # rounds that the others may make while a thread is held up: waits that run out,
ROUND = 100  # spinning, or so many exchanges of the baton


class Chooser(Protocol):
    """Decides who runs next when several can."""

    def choose(self, runnable: Sequence[int]) -> int:
        """One of the thread numbers in ``runnable``, which holds them as they became runnable."""


class FirstCome:
    def choose(self, runnable: Sequence[int]) -> int:
        return runnable[0]


class Baton:
    def __init__(self, order: Order, chooser: Chooser) -> None:
        self.order = order
        self.clock = Clock()
        self.live = True
        self.progress = 0  # counts what happens, for the watchdog
        self.deadlock: Deadlock | None = None
        self.agents: list[Agent] = []
        self.guests: set[int] = set()  # idents of uncontrolled threads that use our locks
        self.uncontrolled: list[str] = []  # what happened that no order knows, for reports
        self.private: set[int] = set()  # idents of redgreen's own threads
        self._chooser = chooser
        self._section = Section()
        self._runnable: list[Agent] = []
        self._returned: list[Agent] = []
        self._held_up: list[Agent] = []
        self._exchanges = 0
        self.running: Agent | None = self.add("main")
        self.running.ident = get_ident()

    # -- threads come and go

    def add(self, name: str) -> Agent:
        agent = Agent(self, len(self.agents), name)
        self.agents.append(agent)
        self.order.started(agent.id, name)
        return agent

    def launch(self, agent: Agent) -> None:
        """The thread exists and is parked, or will be: it may be chosen from now on."""
        with self._section:
            self._runnable.append(agent)

    def park(self, agent: Agent) -> None:
        """Return when ``agent`` has the baton (or control has ended)."""
        patience = -1.0
        while True:
            opened = agent.gate.acquire(True, patience)
            with self._section:
                if agent.gate_open and not opened:  # opened just after we gave up waiting
                    agent.gate.acquire()
                agent.gate_open = False
                if agent.granted:
                    agent.granted = False
                    return
                patience = self._patience(agent)

    def finish(self, agent: Agent) -> None:
        """The thread's last act."""
        with self._section:
            agent.finished = True
            if self.live and not agent.outside:
                agent.ended_at = self.order.release(agent.id)
                self._ready(agent.joiners, len(agent.joiners))
                self._hand_on()

    # -- threads block and wake

    def block(
        self, agent: Agent, queue: list[Agent], due: Due | None, what: str, asleep: bool = False
    ) -> Wake:
        """Give the baton away until ``queue`` is woken or the time is over. ``asleep``: it does not
        wait for anything but that."""
        with self._section:
            if not self.live:
                return Wake.FREED
            agent.waits_for = what
            agent.queue = queue
            agent.due = due
            agent.asleep = asleep
            queue.append(agent)
            self._hand_on()
        return self._woken(agent)

    def hold_up(self, agent: Agent, may_go_on: Callable[[], bool], what: str) -> bool | None:
        """Let the others run until ``may_go_on``. False: that is not so, and none of them can
        change it. None: none did for long."""
        with self._section:
            if not self.live:
                return False
            agent.waits_for = what
            agent.may_go_on, agent.patience = may_go_on, PATIENCE
            agent.held_until = self.clock.now + HELD_SECONDS
            self._held_up.append(agent)
            self._hand_on()
        return {Wake.READY: True, Wake.TIMEOUT: False}.get(self._woken(agent))

    def _woken(self, agent: Agent) -> Wake:
        self.park(agent)
        agent.operations = 0
        agent.waits_for = ""
        if agent.error is not None:
            error, agent.error = agent.error, None
            raise error
        return agent.wake

    def wake(self, queue: list[Agent], count: int = 1) -> None:
        """Make the first ``count`` threads of ``queue`` runnable. Uncontrolled threads may call."""
        with self._section:
            self._ready(queue, count)
            if self.live and self.running is None:
                self._hand_on()

    def give_way(self, agent: Agent) -> None:
        """Let the others that can run do so first."""
        with self._section:
            agent.operations = 0
            if not self.live:
                return
            self._runnable += sorted(self._returned, key=lambda back: back.id)
            self._returned.clear()
            if not (self._relieve() or self._lose_patience() or self._runnable):
                return
            self._runnable.append(agent)
            self._hand_on()
        self.park(agent)

    def tick(self, agent: Agent) -> None:
        """Count an operation of the running thread."""
        self.progress += 1
        agent.operations += 1
        if agent.operations % SPIN == 0:
            with self._section:
                self.clock.now += SPIN_SECONDS
                while (next := self._earliest()) and _order_of(next)[0] <= self.clock.now:
                    self._expire(next)
            self.give_way(agent)

    # -- calls outside control

    def leave(self, agent: Agent) -> None:
        """The running thread is about to really block: the others go on without it."""
        with self._section:
            agent.outside = True
            self._hand_on()

    def come_back(self, agent: Agent) -> None:
        with self._section:
            agent.outside = False
            if not self.live:
                return
            self._returned.append(agent)
            if self.running is None:
                self._hand_on()
        self.park(agent)

    def guest(self) -> None:
        """An uncontrolled thread uses a controlled lock: it may be the one that others wait for."""
        ident = get_ident()
        if ident not in self.guests and all(agent.ident != ident for agent in self.agents):
            self.guests.add(ident)
            self.uncontrolled.append("a thread that is not under control used a lock that is")

    def freeze(self) -> None:
        """The running thread keeps the baton for good, and uses real primitives from now on."""
        with self._section:
            if self.running is not None:
                self.running.outside = True

    def stop(self) -> None:
        """End control: every parked thread goes on by itself, with the real primitives."""
        with self._section:
            self.live = False
            for agent in self.agents[1:]:
                if not agent.finished and not agent.outside:
                    agent.wake = Wake.FREED
                    if self.deadlock is not None:
                        agent.error = Unwound()
                    self._grant(agent)

    def alive(self) -> list[Agent]:
        return [agent for agent in self.agents[1:] if not agent.finished]

    def unfinished(self) -> list[Agent]:
        """Threads that would go on by themselves: not those that wait for another to act."""
        return [a for a in self.alive() if a in self._runnable or a.due is not None]

    # -- the decision (inside the section)

    def _hand_on(self) -> None:
        self.progress += 1
        self.running = self._next()
        if self.running is not None:
            self._grant(self.running)

    def _next(self) -> Agent | None:
        self._exchanges += 1
        if self._exchanges % ROUND == 0:
            self._lose_patience()
        if self._runnable or self._relieve():
            return self._choose()
        if self._returned:
            back = min(self._returned, key=lambda agent: agent.id)
            self._returned.remove(back)
            return back
        waiting = self._earliest()
        outside = self._anyone_outside()
        if self._held_up and (outside or waiting is None or self._lose_patience()
                              or self._too_late(waiting)):
            if not self._runnable:
                never = waiting is None and not outside and not self._strangers()
                self._let_go(self._held_up[0], Wake.TIMEOUT if never else Wake.IMPATIENT)
            return self._choose()
        if outside:
            if waiting is not None:
                self._open_gate(waiting)  # it wakes, and keeps watch over its own due
            return None
        if waiting is not None:
            self._expire(waiting)
            return self._choose()
        if self._strangers():
            return None
        return self._give_up()

    def _choose(self) -> Agent:
        runnable = self._runnable
        if len(runnable) == 1:
            return runnable.pop()
        chosen = self._chooser.choose([agent.id for agent in runnable])
        return runnable.pop([agent.id for agent in runnable].index(chosen))

    def _relieve(self) -> bool:
        """Make the first thread runnable that was held up and is not any more."""
        for agent in self._held_up:
            if agent.may_go_on is not None and agent.may_go_on():
                self._let_go(agent, Wake.READY)
                return True
        return False

    def _lose_patience(self) -> bool:
        """The others do something once more that may help nobody. Is that enough?"""
        for agent in self._held_up:
            agent.patience -= 1
        if self._held_up and self._held_up[0].patience < 0:
            self._let_go(self._held_up[0], Wake.IMPATIENT)
            return True
        return False

    def _too_late(self, waiting: Agent) -> bool:
        """Does the next wait run out after so long that its thread would take it for a failure?"""
        return not waiting.asleep and _order_of(waiting)[0] > self._held_up[0].held_until

    def _let_go(self, agent: Agent, wake: Wake) -> None:
        self._held_up.remove(agent)
        agent.may_go_on, agent.wake = None, wake
        self._runnable.append(agent)

    def _earliest(self) -> Agent | None:
        waiting = [agent for agent in self.agents if agent.due is not None]
        return min(waiting, key=_order_of, default=None)

    def _expire(self, agent: Agent) -> None:
        assert agent.due is not None
        self.clock.skip_to(agent.due)
        self._unqueue(agent, Wake.TIMEOUT)
        self._runnable.append(agent)

    def _patience(self, agent: Agent) -> float:
        """How long a parked thread that was not granted the baton waits now, in real seconds."""
        if self.running is not None or agent.due is None or agent is not self._earliest():
            return -1.0
        left = self.clock.left(agent.due)
        if left <= 0:
            self._expire(agent)
            self._hand_on()
        return max(left, 0.0)

    def _give_up(self) -> Agent:
        stuck = [agent for agent in self.agents if not agent.finished]
        text = "deadlock: no thread can run\n\n" + "\n".join(describe(agent) for agent in stuck)
        main = self.agents[0]
        main.error = Deadlock(text)
        self.deadlock = self.deadlock or main.error
        self._unqueue(main, Wake.READY)
        return main

    # -- small things (inside the section)

    def _ready(self, queue: list[Agent], count: int) -> None:
        for agent in queue[:count]:
            self._unqueue(agent, Wake.READY)
            self._runnable.append(agent)

    @staticmethod
    def _unqueue(agent: Agent, wake: Wake) -> None:
        if agent.queue is not None:
            agent.queue.remove(agent)
        agent.queue, agent.due, agent.wake = None, None, wake

    def _grant(self, agent: Agent) -> None:
        agent.granted = True
        self._open_gate(agent)

    @staticmethod
    def _open_gate(agent: Agent) -> None:
        if not agent.gate_open:
            agent.gate_open = True
            agent.gate.release()

    def _anyone_outside(self) -> bool:
        if any(agent.outside and not agent.finished for agent in self.agents):
            return True
        return bool(self.guests) and not self.guests.isdisjoint(sys._current_frames())

    def _strangers(self) -> bool:
        """Are there uncontrolled threads? One of them may yet do what the others wait for."""
        known = {agent.ident for agent in self.agents} | self.private
        return not known.issuperset(sys._current_frames())


def _order_of(agent: Agent) -> tuple[float, int]:
    assert agent.due is not None
    return agent.due.virtual, agent.due.sequence
