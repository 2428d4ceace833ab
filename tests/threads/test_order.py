"""What orders two host threads, each rule with the pair: ordered with it, not ordered without."""

from __future__ import annotations

import _thread
import queue
import threading
import time
from collections.abc import Callable

from tests.threads.log import Log, watched


def ordered(program: Callable[[Log], object]) -> bool:
    log, _ = watched(program)
    return log.ordered("first", "second")


def in_thread(body: Callable[[], object]) -> threading.Thread:
    thread = threading.Thread(target=body)
    thread.start()
    return thread


def test_what_is_done_before_start_comes_before_the_thread() -> None:
    def program(log: Log) -> None:
        log.step("first")
        in_thread(lambda: log.step("second")).join()

    assert ordered(program)


def test_the_same_for_a_raw_thread() -> None:
    def program(log: Log) -> None:
        log.step("first")
        _thread.start_new_thread(lambda: log.step("second"), ())
        time.sleep(1)

    assert ordered(program)


def test_what_is_done_after_start_is_not_ordered() -> None:
    def program(log: Log) -> None:
        def later() -> None:
            time.sleep(1)
            log.step("second")

        thread = in_thread(later)
        log.step("first")
        thread.join()

    assert not ordered(program)


def test_join_orders() -> None:
    def program(log: Log) -> None:
        in_thread(lambda: log.step("first")).join()
        log.step("second")

    assert ordered(program)


def test_waiting_long_enough_instead_of_joining_does_not_order() -> None:
    def program(log: Log) -> None:
        thread = in_thread(lambda: log.step("first"))
        time.sleep(10)
        log.step("second")
        thread.join()

    assert not ordered(program)


def test_seeing_a_thread_dead_orders() -> None:
    def program(log: Log) -> None:
        thread = in_thread(lambda: log.step("first"))
        while thread.is_alive():
            time.sleep(1)
        log.step("second")

    assert ordered(program)


def with_lock(log: Log, second: threading.Lock, first: threading.Lock) -> None:
    def work() -> None:
        with first:
            log.step("first")

    thread = in_thread(work)
    time.sleep(1)
    with second:
        log.step("second")
    thread.join()


def test_a_release_and_the_next_acquire_of_one_lock_order() -> None:
    def program(log: Log) -> None:
        lock = threading.Lock()
        with_lock(log, lock, lock)

    assert ordered(program)


def test_two_locks_do_not_order() -> None:
    assert not ordered(lambda log: with_lock(log, threading.Lock(), threading.Lock()))


def test_what_follows_a_release_is_not_covered_by_it() -> None:
    """The moment is the release, also though it is published only when it matters."""

    def program(log: Log) -> None:
        lock = threading.Lock()

        def work() -> None:
            with lock:
                log.step("inside")
            log.step("first")

        thread = in_thread(work)
        time.sleep(1)
        with lock:
            log.step("second")
        thread.join()

    assert not ordered(program)
    assert watched(program)[0].ordered("inside", "second")


def test_put_and_get_order() -> None:
    def program(log: Log) -> None:
        items: queue.Queue[int] = queue.Queue()

        def work() -> None:
            log.step("first")
            items.put(1)

        thread = in_thread(work)
        items.get()
        log.step("second")
        thread.join()

    assert ordered(program)


def test_an_event_that_was_seen_set_orders() -> None:
    def program(log: Log) -> None:
        event = threading.Event()

        def work() -> None:
            log.step("first")
            event.set()

        thread = in_thread(work)
        while not event.is_set():
            time.sleep(1)
        log.step("second")
        thread.join()

    assert ordered(program)


def test_a_wait_that_timed_out_orders_nothing() -> None:
    def program(log: Log) -> None:
        thread = in_thread(lambda: log.step("first"))
        threading.Event().wait(1)
        log.step("second")
        thread.join()

    assert not ordered(program)


def test_order_passes_through_a_third_thread() -> None:
    def program(log: Log) -> None:
        one, two = threading.Event(), threading.Event()

        def start() -> None:
            log.step("first")
            one.set()

        def relay() -> None:
            one.wait()
            two.set()

        threads = [in_thread(relay), in_thread(start)]
        two.wait()
        log.step("second")
        for thread in threads:
            thread.join()

    assert ordered(program)


def test_a_thread_that_makes_no_steps_does_not_appear() -> None:
    """It passes the order on all the same, see above."""

    def program(log: Log) -> None:
        items: queue.Queue[int] = queue.Queue()
        thread = in_thread(lambda: [items.get() for _ in range(3)])
        for i in range(3):
            log.step(i)
            items.put(i)
        thread.join()
        log.step("last")

    log, _ = watched(program)
    assert [event[0] for event in log.essential()] == ["start", *["step"] * 4]


def test_steps_without_a_release_in_between_publish_nothing() -> None:
    def program(log: Log) -> None:
        lock = threading.Lock()
        with lock:
            log.step("a")
        log.step("b")
        log.step("c")

    log, _ = watched(program)
    assert [event[0] for event in log.events] == ["step", "publish", "step", "step"]


def test_locks_between_two_steps_cost_the_trace_nothing() -> None:
    def program(log: Log) -> None:
        items: queue.Queue[int] = queue.Queue()
        thread = in_thread(lambda: [items.get() for _ in range(100)])
        for i in range(100):
            items.put(i)
        thread.join()

    log, _ = watched(program)
    assert [event[0] for event in log.events] == ["start"]
