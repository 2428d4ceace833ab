"""The device's progress: queues of work, and who may run next.

Nothing here knows torch. Host calls append `Work` to the queue of a stream; a schedule decides how
far the device gets before each host step. There are three ways for work to be held back: the queue
is FIFO (CUDA: operations in a stream execute in issue order), an ACQUIRE waits for the PUBLISH that
it was bound to when it was issued, and an `Order` of the schedule holds one step until another.

The policy is asked at every host step, before the step happens. A host step that waits (a
synchronize, `.item()`) makes the device run just what it waits for. When that cannot be done
without breaking an `Order`, the other host threads go on, as they do while one is blocked in a
sync. When none of them can make it possible, the order is broken and reported: a schedule never
deadlocks the host.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Hashable, Iterable

from ..faults import Fault
from ..schedule import Order, Schedule, Torn, begin
from ..trace import Access, Kind, Trace
from .journal import Journal
from .priorities import Priorities
from .work import Gate, Parted, Work

POLLS = 64  # fruitless polls of one thing, after which the device must have made progress


# Lets other host threads go on until the first argument says yes; see `Control.hold_up`.
HoldUp = Callable[[Callable[[], bool], str], bool | None]


class Diverged(BaseException):
    """The run did more steps than its limit. Not an Exception: programs swallow those."""


def _thread_of(label: str) -> str:
    """The host thread that issues the step of this label, as `Journal._prefix` begins it."""
    return label.rpartition("#")[0].partition("@")[2]


class Machine(Journal):
    """The queues of one run, and how far they have got."""

    def __init__(
        self,
        schedule: Schedule,
        faults: frozenset[Fault] = frozenset(),
        step_limit: int | None = None,
    ) -> None:
        super().__init__(faults)
        self.schedule = schedule
        self.queues: dict[int, deque[Work]] = {}
        self.error: BaseException | None = None  # sticky: raised at every later host sync
        self.on_error: Callable[[Work, BaseException], BaseException] = lambda _, e: e
        self.gates: list[Gate] = []  # closed ones
        self.broken: list[Order] = []
        self.given_up: list[Order] = []  # of these: with more patience they might have been kept
        self.step_limit = step_limit
        self._inserted = [f for f in faults if f.action == "wait"]
        self.watched: dict[str, Work | None] = {}  # labels that orders speak of
        self._orders = self._watch(schedule.orders)  # by the label that is held
        self._calls = self._watch(schedule.calls)  # by the label whose call is held
        self._torn = {torn.step: torn for torn in schedule.torn}
        self._begun: list[Work] = []
        self.parted: Callable[[Work, Torn], Parted] | None = None  # how to execute in two parts
        self._answers = dict(schedule.choices)
        self._polls: dict[Hashable, int] = {}
        self._random = random.Random(schedule.seed)
        self._eager = schedule.policy == "serial" and not (schedule.orders or schedule.torn)
        self._favourite = -1
        self._late = frozenset(schedule.late)
        self._priorities = Priorities(schedule) if schedule.policy == "pct" else None
        self._accesses = 0  # issued to streams so far
        self._running = False
        self.before_step: Callable[[], None] | None = None  # host threads under control
        self.catch_up: Callable[[], None] = lambda: None  # before an allocator's question
        self.hold_up: HoldUp = lambda possible, what: False

    def _watch(self, orders: Iterable[Order]) -> dict[str, list[Order]]:
        held: dict[str, list[Order]] = {}
        for order in orders:
            held.setdefault(order.second, []).append(order)
            self.watched[order.first] = self.watched[order.second] = None
        return held

    def new_stream(self, name: str) -> int:
        """Adds a device agent with an empty queue."""
        agent = self._stream(name)
        self.queues[agent] = deque()
        if name == self.schedule.stream:
            self._favourite = agent
        return agent

    # -- host steps ------------------------------------------------------------------------------

    def host_step(self, work: Work) -> Work:
        """A host step: the policy is asked, the orders on it are kept, then it happens.

        The caller does the host's side of it (reading or writing bytes) right after this returns.
        """
        self._enter(work)
        for order in self._orders.get(work.label, ()) if self._orders else ():
            self._require(order)
        self._advance()
        work.done = True
        self.execution.append(work.index)
        return work

    def host_access(self, op: str, accesses: tuple[Access, ...], site: int | None = None) -> Work:
        me = self.host()
        where = self.sites.here() if site is None else site
        return self.host_step(Work(me, me, Kind.ACCESS, op, where, accesses=accesses))

    def drain(self, op: str, agents: tuple[int, ...], edges: tuple[int, ...] = ()) -> None:
        """The host waits until everything issued to ``agents`` is done; a sticky error surfaces."""
        me = self.host()
        work = Work(me, me, Kind.DRAIN, op, self.sites.here(), edges=edges)
        work.targets = agents
        self.turn(op)
        self._wait_then(work, [self.queues[a][-1] for a in agents if self.queues[a]])

    def acquire(
        self, op: str, key: Hashable, after: Work | None, edges: tuple[int, ...] = ()
    ) -> None:
        """The host waits for what was published (event synchronize, reuse of a block)."""
        me = self.host()
        work = Work(me, me, Kind.ACQUIRE, op, self.sites.here(), key=key, after=after, edges=edges)
        self._wait_then(work, [] if after is None else [after])

    def _wait_then(self, work: Work, targets: list[Work]) -> None:
        self._enter(work)
        for order in self._orders.get(work.label, ()) if self._orders else ():
            self._require(order)
        self._advance()
        for target in targets:
            self.force(target)
        work.done = True
        self.execution.append(work.index)
        if self.error is not None:
            raise self.error

    def host_order(self, kind: Kind, key: Hashable, thread: int) -> None:
        """Order between host threads: a PUBLISH or ACQUIRE of ``thread``, not a step of the device.

        The schedule is not asked: locks are taken and released inside other steps.
        """
        me = self._agent_of(thread)
        op = "thread release" if kind is Kind.PUBLISH else "thread acquire"
        work = Work(me, me, kind, op, self.sites.here(), key=("thread", key))
        self._append(work)
        work.done = True
        self.execution.append(work.index)

    def choice(
        self, op: str, pending: list[Work], key: Hashable = None,
        targets: tuple[int, ...] = (), allocation: int = -1,
    ) -> bool:  # fmt: skip
        """Has the device got so far? A choice of the schedule, else what the policy has run.

        A yes orders the host behind what it asked about: what was published under ``key``, or all
        that the ``targets`` were given.
        """
        me = self.host()
        work = Work(me, me, Kind.CHOICE, op, self.sites.here(), key=key)
        work.targets, work.allocation = targets, allocation
        self._enter(work)
        self._advance()
        if allocation >= 0:
            self.catch_up()
        answer = self._answers.get(work.label)
        asked = work.site, me, key, targets
        polls = self._polls.get(asked, 0) + 1
        if polls > POLLS:  # whatever the schedule says: else a polling loop never ends
            answer = True
        if not answer:  # a no that is not true any more cannot be kept
            answer = all(w.done for w in pending)
        if answer:
            for w in pending:  # inside the allocator nobody else may run
                self.force(w, yielding=allocation < 0)
        self._polls[asked] = 0 if answer else polls
        work.taken = answer
        work.done = True
        self.execution.append(work.index)
        return answer

    def freed(self, allocation: int) -> None:
        me = self.host()
        work = Work(me, me, Kind.FREE, "free", self.sites.here())
        work.allocation = allocation
        self.host_step(work)

    # -- device steps ----------------------------------------------------------------------------

    def enqueue(self, work: Work) -> Work:
        """Appends to the stream's queue; the policy may run it at once."""
        self._enter(work)
        if self._eager and not self.gates:
            # Everything before it has run already, and what it waits for was issued earlier.
            self._execute(work)
            return work
        if self._torn and work.label in self._torn:
            self._part(work)
        if self._late and self._priorities is None and work.kind is Kind.ACCESS:
            work.late = self._accesses in self._late
            self._accesses += 1
        self.queues[work.agent].append(work)
        self._advance()
        return work

    def _part(self, work: Work) -> None:
        """The first part goes in front of the step, as work of its own that is no step."""
        if self.parted is None or work.run is None:
            return
        parts = self.parted(work, self._torn[work.label])
        first = Work(work.agent, work.issuer, work.kind, work.op, work.site, parts.begin)
        first.index, first.label, first.after = work.index, begin(work.label), work.after
        work.run = parts.rest
        self._begun.append(first)
        if first.label in self.watched:
            self.watched[first.label] = first
        self.queues[work.agent].append(first)

    def publish(
        self, agent: int, op: str, key: Hashable, edges: tuple[int, ...] = (), allocation: int = -1
    ) -> Work:
        site = self.sites.here()
        work = Work(agent, self.host(), Kind.PUBLISH, op, site, key=key, edges=edges)
        work.allocation = allocation
        return self.enqueue(work)

    def _enter(self, work: Work) -> None:
        if self._calls:
            self._keep_calls(work)
        if self.before_step is not None:
            self.before_step()
        if self._inserted and work.kind is Kind.ACCESS:
            self._wait_as_inserted(work)
        self._append(work)

    def turn(self, op: str) -> None:
        """The running thread is about to make this call, which looks at what others have done:
        those of their calls come first that the schedule puts first."""
        if self._calls:
            me = self.host()
            self._keep_calls(Work(me, me, Kind.CHOICE, op, self.sites.here()))

    def _keep_calls(self, work: Work) -> None:
        """Lets the other threads go on until they have made the calls that come before this one."""
        prefix = self._prefix(work)
        for order in self._calls.get(f"{prefix}#{self._labels.get(prefix, 0) + 1}", ()):
            self._wait_for_call(order)

    def _wait_for_call(self, order: Order) -> None:
        while self._unissued(order):
            self._get_past(order, lambda: self._unissued(order))

    def _wait_as_inserted(self, work: Work) -> None:
        """The waits that a repair puts in front of this access."""
        agents, site = self.trace.agents, self.sites.sites[work.site]
        for fault in self._inserted:
            if fault.edge.site != site or fault.waiter != agents[work.agent].name:
                continue
            for awaited in agents:
                if awaited.name == fault.awaited:
                    self.hits[fault] += 1
                    self._insert_wait(work, awaited.id)

    def _insert_wait(self, work: Work, awaited: int) -> None:
        key = ("inserted", len(self.works))
        record = Work(awaited, work.issuer, Kind.PUBLISH, "inserted record", work.site, key=key)
        self.enqueue(record)
        wait = Work(
            work.agent, work.issuer, Kind.ACQUIRE, "inserted wait", work.site, key=key,
            after=record,
        )  # fmt: skip
        if work.agent == work.issuer:
            self._wait_then(wait, [record])
        else:
            self.enqueue(wait)

    def _append(self, work: Work) -> None:
        works = self.works
        work.index = len(works)
        works.append(work)
        if self.step_limit is not None and work.index >= self.step_limit:
            self.step_limit = None  # once: cleaning up must not raise again
            raise Diverged(f"more than {work.index} steps")
        if self.watched or self._answers or self._torn:  # else labels are only made for the trace
            self._label(work)
            if work.label in self.watched:
                self.watched[work.label] = work

    # -- progress --------------------------------------------------------------------------------

    def _execute(self, work: Work) -> None:
        run = work.run
        if run is not None and self.error is None:
            try:
                run(work)
            except Exception as error:  # surfaces at the next host sync, as CUDA's errors do
                self.error = self.on_error(work, error)
        work.run = None
        work.after = None
        work.done = True
        self.execution.append(work.index)

    def blocker(self, work: Work) -> Work | Order | None:
        """What holds the head of a queue: work to run first, an order that cannot be kept yet."""
        if work.after is not None and not work.after.done:
            return work.after
        for order in self._orders.get(work.label, ()) if self._orders else ():
            if order in self.broken:
                continue
            first = self.watched[order.first]
            if first is None:
                return order
            if not first.done:
                return first if first.agent in self.queues else order
        return None

    def _keeps(self, order: Order) -> bool:
        """Does this order hold back its second step?"""
        first = self.watched[order.first]
        return order not in self.broken and not (first is not None and first.done)

    def _ready(self) -> list[Work]:
        heads = (q[0] for q in self.queues.values() if q and self._gate(q[0]) is None)
        return [w for w in heads if self.blocker(w) is None]

    def pop(self, work: Work) -> None:
        self.queues[work.agent].popleft()
        self._execute(work)

    def _advance(self) -> None:
        """Lets the device run as far as the policy wants. Not re-entrant: work is host code."""
        if self._running or (self._eager and not self.gates and not any(self.queues.values())):
            return
        policy = self.schedule.policy
        if policy == "lazy":
            return
        self._running = True
        try:
            if policy == "random":
                self._advance_randomly()
            elif policy == "first":
                self._advance_first()
            elif self._priorities is not None:
                self._advance_by_priority(self._priorities)
            else:  # serial, last, late
                self._advance_all(but=self._favourite if policy == "last" else -1)
        finally:
            self._running = False

    def _advance_all(self, but: int) -> None:
        while ready := [w for w in self._ready() if w.agent != but and not w.late]:
            self.pop(min(ready, key=lambda w: w.index))

    def _advance_by_priority(self, priorities: Priorities) -> None:
        priorities.step(self.queues)
        while ready := [w for w in self._ready() if priorities.in_front(w.agent)]:
            self.pop(max(ready, key=lambda w: priorities.of(w.agent)))

    def _advance_first(self) -> None:
        queue = self.queues.get(self._favourite)
        while queue:
            step = self._next_towards(queue[-1])
            if not isinstance(step, Work):
                return
            self.pop(step)

    def _advance_randomly(self) -> None:
        while (ready := self._ready()) and self._random.random() < 0.5:
            self.pop(self._random.choice(ready))

    def _gate(self, head: Work) -> Gate | None:
        for gate in self.gates:
            if gate.agent == head.agent and gate.start <= head.index:
                return gate
        return None

    def _next_towards(self, target: Work) -> Work | Order | Gate:
        """The next work to run so that ``target`` gets done, or the order or gate in the way."""
        seen: dict[int, Work] = {}
        while True:
            head = self.queues[target.agent][0]
            gate = self._gate(head)
            if gate is not None:
                return gate
            blocker = self.blocker(head)
            if blocker is None:
                return head
            if isinstance(blocker, Order):
                return blocker
            if head.index in seen:  # orders in a circle, with waits in it perhaps: break one
                return next(order for work in (head, *seen.values())
                            for order in self._orders.get(work.label, ()) if self._keeps(order))
            seen[head.index] = head
            target = blocker

    def force(self, target: Work, yielding: bool = True) -> None:
        """Runs what ``target`` needs, and target. Orders that stand in the way and that no other
        host thread makes it possible to keep are broken."""
        while not target.done:
            step = self._next_towards(target)
            if isinstance(step, Order):
                self._get_past(step, lambda: self._held_back(target), yielding)
            elif isinstance(step, Gate):
                step.broken = True
                self.gates.remove(step)
                self.note("hold-broken", target.site, "a held stream was waited for")
            else:
                self.pop(step)

    def _held_back(self, target: Work) -> Order | None:
        step = None if target.done else self._next_towards(target)
        return step if isinstance(step, Order) else None

    def _require(self, order: Order) -> None:
        """Keeps an order whose later step is the host step that is about to happen."""
        self._wait_for_call(order)
        first = self.watched[order.first]
        if first is not None and not first.done and order not in self.broken:
            self.force(first)

    def _unissued(self, order: Order) -> Order | None:
        """The order, as long as only a host thread can get its first step done."""
        first = self.watched[order.first]
        if order in self.broken or (first and (first.done or first.agent in self.queues)):
            return None
        return order

    def _get_past(
        self, order: Order, in_the_way: Callable[[], Order | None], yielding: bool = True
    ) -> None:
        """Another host thread may do what the order waits for: let it. Else break the order."""
        first = self.watched[order.first]
        theirs = first is None or first.agent not in self.queues
        if yielding and theirs and _thread_of(order.first) != self._my_name():
            possible = self.hold_up(lambda: in_the_way() is None, "waits for the device")
            left = in_the_way()
            if left is None:
                return
            order = left
            if possible is None:
                self.given_up.append(order)
        self.broken.append(order)

    def _my_name(self) -> str:
        me = self.host()
        return "" if me == 0 else self.trace.agents[me].name

    def hold(self, agent: int) -> Gate:
        """Nothing issued to this stream from now on executes before the gate is opened."""
        gate = Gate(agent, len(self.works))
        self.gates.append(gate)
        return gate

    def release(self, gate: Gate) -> None:
        """Opens a gate; the policy goes on."""
        if gate in self.gates:
            self.gates.remove(gate)
            self._advance()

    def settle(self) -> None:
        """Runs everything that is left, at the end of a run."""
        self.gates.clear()
        for queue in self.queues.values():
            while queue:
                self.force(queue[-1])

    # -- the trace -------------------------------------------------------------------------------

    def finish(self) -> Trace:
        """Ends the run: the device finishes its work, the trace is complete."""
        self.settle()
        # A step that never came was not reversed either.
        for order in (*self.schedule.orders, *self.schedule.calls):
            if order not in self.broken and None in (
                self.watched[order.first], self.watched[order.second]
            ):  # fmt: skip
                self.broken.append(order)
        for first in self._begun:  # no step: the second part stands for the whole
            if first.done:
                self.execution.remove(first.index)
        return self._steps()
