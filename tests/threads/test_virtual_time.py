"""Waits take no real time, and run out only when nothing else can run."""

from __future__ import annotations

import queue
import threading
import time
from time import monotonic as real_monotonic  # rebound while control is installed

from redgreen.threads.originals import monotonic
from tests.threads.log import Log, watched


def test_a_long_sleep_takes_no_real_time_but_shows_on_every_clock() -> None:
    def program(log: Log) -> list[float]:
        clocks = [time.time, time.monotonic, time.perf_counter, real_monotonic]
        clocks += [lambda: time.time_ns() / 1e9, lambda: time.monotonic_ns() / 1e9]
        before = [clock() for clock in clocks]
        time.sleep(1000)
        return [clock() - start for clock, start in zip(clocks, before, strict=True)]

    begin = monotonic()
    _, shown = watched(program)
    assert monotonic() - begin < 100
    assert all(1000 <= seconds < 1100 for seconds in shown)


def test_a_loop_until_a_deadline_on_the_clock_ends() -> None:
    def program(log: Log) -> int:
        empty: queue.Queue[int] = queue.Queue()
        deadline, rounds = time.monotonic() + 500, 0
        while time.monotonic() < deadline:
            try:
                empty.get(timeout=0.5)
            except queue.Empty:
                rounds += 1
        return rounds

    assert 900 <= watched(program)[1] <= 1000


def test_clocks_are_not_reproducible_on_purpose() -> None:
    """A program that prints a clock must differ between two recordings."""
    readings = [watched(lambda log: time.perf_counter())[1] for _ in range(2)]
    assert readings[0] != readings[1]


def test_a_timeout_does_not_fire_while_another_thread_can_run() -> None:
    def program(log: Log) -> bool:
        ready = threading.Event()

        def compute() -> None:
            begin = monotonic()
            while monotonic() - begin < 0.05:  # longer than the time-out, in real time
                pass
            ready.set()

        threading.Thread(target=compute).start()
        return ready.wait(timeout=0.001)

    assert watched(program)[1] is True


def test_a_timeout_fires_when_nothing_else_can_run() -> None:
    assert watched(lambda log: threading.Event().wait(timeout=0.001))[1] is False


def test_waits_run_out_in_the_order_of_their_ends() -> None:
    def program(log: Log) -> None:
        def nap(seconds: float) -> None:
            time.sleep(seconds)
            log.step(seconds)

        threads = [threading.Thread(target=nap, args=(s,)) for s in (30, 10, 20)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(timeout=100)
        assert not any(thread.is_alive() for thread in threads)

    log, _ = watched(program)
    assert [event[1] for event in log.events if event[0] == "step"] == [10, 20, 30]


def test_join_times_out_on_a_thread_that_sleeps_longer() -> None:
    def program(log: Log) -> tuple[bool, bool]:
        thread = threading.Thread(target=time.sleep, args=(10,))
        thread.start()
        thread.join(timeout=1)
        early = thread.is_alive()
        thread.join()
        return early, thread.is_alive()

    assert watched(program)[1] == (True, False)


def test_a_timer_fires_and_a_cancelled_one_does_not() -> None:
    def program(log: Log) -> list[str]:
        seen: list[str] = []
        timers = [threading.Timer(100, seen.append, [name]) for name in ("kept", "cancelled")]
        for timer in timers:
            timer.start()
        timers[1].cancel()
        for timer in timers:
            timer.join()
        return seen

    assert watched(program)[1] == ["kept"]
