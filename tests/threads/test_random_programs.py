"""Random programs of locks, queues, events and sleeps end, the same way every time."""

from __future__ import annotations

import contextlib
import queue
import threading
import time
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.threads.log import Log, watched

# Every blocking operation has a time-out, and locks are taken in one order: each program ends.
LOCKS = st.lists(st.integers(0, 2), min_size=1, max_size=2, unique=True).map(sorted)
SECONDS = st.sampled_from([0, 0.1, 0.25, 1])
OPERATIONS = st.one_of(
    st.tuples(st.just("lock"), LOCKS),
    st.tuples(st.just("put"), SECONDS),
    st.tuples(st.just("get"), SECONDS),
    st.tuples(st.just("sleep"), SECONDS),
    st.tuples(st.just("set"), st.none()),
    st.tuples(st.just("wait"), SECONDS),
    st.tuples(st.just("spawn"), SECONDS),
)
PROGRAMS = st.lists(st.lists(OPERATIONS, max_size=6), min_size=1, max_size=4)


class Machine:
    def __init__(self, log: Log) -> None:
        self.log = log
        self.locks = [threading.Lock(), threading.RLock(), threading.Lock()]
        self.items: queue.Queue[Any] = queue.Queue(1)
        self.event = threading.Event()

    def run(self, name: str, operations: list[tuple[str, Any]]) -> None:
        spawned = []
        for i, (operation, argument) in enumerate(operations):
            if operation == "spawn":
                thread = threading.Thread(target=time.sleep, args=(argument,))
                thread.start()
                spawned.append(thread)
            else:
                self.log.step((name, i, operation, self.one(operation, argument)))
        for thread in spawned:
            thread.join()

    def one(self, operation: str, argument: Any) -> object:
        try:
            if operation == "lock":
                with contextlib.ExitStack() as held:
                    for which in argument:
                        held.enter_context(self.locks[which])
                    time.sleep(0.1)
            elif operation == "put":
                self.items.put(argument, timeout=argument)
            elif operation == "get":
                return self.items.get(timeout=argument)
            elif operation == "sleep":
                time.sleep(argument)
            elif operation == "set":
                self.event.set()
            elif operation == "wait":
                return self.event.wait(argument)
        except (queue.Empty, queue.Full) as error:
            return type(error).__name__
        return None


def run(program: list[list[tuple[str, Any]]]) -> list[Any]:
    def body(log: Log) -> None:
        machine = Machine(log)
        threads = [
            threading.Thread(target=machine.run, args=(str(i), operations))
            for i, operations in enumerate(program)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    return watched(body)[0].events


@settings(max_examples=60, deadline=None)
@given(PROGRAMS)
def test_random_programs_end_and_repeat(program: list[list[tuple[str, Any]]]) -> None:
    assert run(program) == run(program)
