"""Two runs of a threaded program give the same log."""

from __future__ import annotations

import concurrent.futures
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from tests.threads.log import Log, watched


def run_all(bodies: Sequence[Callable[[], Any]]) -> None:
    threads = [threading.Thread(target=body) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def with_locks(log: Log) -> None:
    lock = threading.Lock()

    def work(n: int) -> None:
        for i in range(3):
            with lock:
                log.step((n, i))
                time.sleep(0)

    run_all([lambda n=n: work(n) for n in range(4)])


def with_condition(log: Log) -> None:
    ready = threading.Condition()
    items: list[int] = []

    def consume(n: int) -> None:
        with ready:
            while not items:
                ready.wait(0.5)
            log.step((n, items.pop()))

    def produce() -> None:
        for i in range(3):
            with ready:
                items.append(i)
                ready.notify()
            time.sleep(0.3)

    run_all([*(lambda n=n: consume(n) for n in range(3)), produce])


def with_queues(log: Log) -> None:
    items: queue.Queue[Any] = queue.Queue(2)

    def produce(n: int) -> None:
        for i in range(4):
            items.put((n, i))
            time.sleep(0.01 * n)

    def consume() -> None:
        while True:
            try:
                log.step(items.get(timeout=1))
            except queue.Empty:
                return

    run_all([*(lambda n=n: produce(n) for n in range(3)), consume, consume])


def with_pool(log: Log) -> None:
    with concurrent.futures.ThreadPoolExecutor(3) as pool:
        futures = [pool.submit(log.step, n) for n in range(6)]
        for future in concurrent.futures.as_completed(futures):
            log.events.append(("done", futures.index(future), 0))
        log.events.append(("map", list(pool.map(str, range(5))), 0))


def with_barrier(log: Log) -> None:
    barrier = threading.Barrier(3, action=lambda: log.step(("action", len(log.events))))

    def work(n: int) -> None:
        for i in range(3):
            log.step((n, i, barrier.wait(5)))

    run_all([lambda n=n: work(n) for n in range(3)])


def with_timeouts(log: Log) -> None:
    stop = threading.Event()

    def work(n: int) -> None:
        while not stop.wait(0.1 * (n + 1)):
            log.step((n, len(log.events)))

    timer = threading.Timer(1.05, stop.set)
    timer.start()
    run_all([lambda n=n: work(n) for n in range(3)])
    timer.join()


def with_equal_queue_timeouts(log: Log) -> None:
    """Equal waits run out in the order they began, whatever the machine computed in between."""
    empty: queue.Queue[int] = queue.Queue()

    def work(n: int) -> None:
        for i in range(3):
            sum(range(2000 * (3 - n)))
            try:
                empty.get(timeout=0.1)
            except queue.Empty:
                log.step((n, i))

    run_all([lambda n=n: work(n) for n in range(3)])


def with_polling(log: Log) -> None:
    """Loops that never block still let the others go on."""
    done = threading.Event()
    items: queue.Queue[int] = queue.Queue()

    def poll() -> None:
        while not done.is_set():
            pass
        log.step("done seen")

    def drain() -> None:
        while True:
            try:
                log.step(items.get_nowait())
                return
            except queue.Empty:
                pass

    def act() -> None:
        time.sleep(2)
        items.put(1)
        done.set()

    run_all([poll, drain, act])


PROGRAMS = [
    with_locks,
    with_condition,
    with_queues,
    with_pool,
    with_barrier,
    with_timeouts,
    with_equal_queue_timeouts,
    with_polling,
]


@pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
def test_fifty_runs_give_one_log(program: Callable[[Log], None]) -> None:
    first, _ = watched(program)
    assert any(event[0] == "step" for event in first.events)
    for _ in range(10 if program is with_polling else 49):
        assert watched(program)[0].events == first.events


def test_sets_of_futures_and_threads_are_in_order_of_creation() -> None:
    def program(log: Log) -> bool:
        things = [threading.Thread() for _ in range(5)]
        futures = [concurrent.futures.Future[int]() for _ in range(5)]
        return list(set(things)) == things and list(set(futures)) == futures

    assert watched(program)[1]


class LastCome:
    def choose(self, runnable: Sequence[int]) -> int:
        return runnable[-1]


def test_the_chooser_decides_who_runs_next() -> None:
    """The counterpart: another chooser gives another log, and again the same one every time."""
    fifo, _ = watched(with_locks)
    lifo, _ = watched(with_locks, LastCome())
    assert lifo.events != fifo.events
    assert watched(with_locks, LastCome())[0].events == lifo.events


def test_threads_are_numbered_and_named_in_order_of_start() -> None:
    def program(log: Log) -> None:
        run_all([lambda: None, lambda: None])

    for _ in range(2):
        log, _ = watched(program)
        assert log.events[:2] == [
            ("start", 1, "Thread-1 (<lambda>)"),
            ("start", 2, "Thread-2 (<lambda>)"),
        ]
