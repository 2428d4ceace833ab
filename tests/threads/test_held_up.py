"""A thread that cannot go on before another one does something: who runs, and when it gives up."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from redgreen.schedule import LAZY, Order, Policy, Schedule
from redgreen.threads import Deadlock
from redgreen.trace import Trace
from redgreen.virtual import VirtualGPU
from tests.child import in_child
from tests.threads.log import Log, watched

N = 4


def held_up(log: Log, may_go_on: Callable[[], bool]) -> bool | None:
    assert log.control is not None
    return log.control.hold_up(may_go_on, "is held up")


def alone(program: Callable[[Log], Any]) -> Any:
    """What it returns in a process without threads that are not under control."""
    return in_child(lambda: watched(program)[1])


def runnable(body: Callable[[], object]) -> threading.Thread:
    """A started thread that could run, but has not: a new one runs at once until it blocks."""
    go = threading.Event()

    def work() -> None:
        go.wait()
        body()

    thread = threading.Thread(target=work)
    thread.start()
    go.set()
    return thread


def test_the_others_run_until_it_may_go_on() -> None:
    def program(log: Log) -> list[Any]:
        seen: list[Any] = []
        thread = runnable(lambda: seen.append("other"))
        assert not seen
        seen.append(held_up(log, lambda: "other" in seen))
        thread.join()
        return seen

    assert watched(program)[1] == ["other", True]


def test_alone_it_gives_up_at_once() -> None:
    assert alone(lambda log: held_up(log, lambda: False)) is False


def test_it_gives_up_when_the_others_wait_for_it() -> None:
    def program(log: Log) -> tuple[bool, bool]:
        go = threading.Event()
        thread = threading.Thread(target=go.wait)
        thread.start()
        answer = held_up(log, lambda: False)
        go.set()
        thread.join()
        return answer, thread.is_alive()

    assert alone(program) == (False, False)


def test_a_sleeping_thread_may_be_the_one() -> None:
    def program(log: Log) -> list[Any]:
        seen: list[Any] = []

        def work() -> None:
            time.sleep(100)
            seen.append("other")

        thread = threading.Thread(target=work)
        thread.start()
        seen.append(held_up(log, lambda: "other" in seen))
        thread.join()
        return seen

    assert watched(program)[1] == ["other", True]


def _polled(wait: Callable[[threading.Event], object]) -> bool | None:
    """The other thread polls for what only the one that is held up can do."""

    def program(log: Log) -> bool | None:
        done = threading.Event()

        def poll() -> None:
            while not done.is_set():
                wait(done)

        thread = threading.Thread(target=poll)
        thread.start()
        answer = held_up(log, lambda: False)
        done.set()
        thread.join()
        return answer

    answer: bool | None = watched(program)[1]
    return answer


def test_it_gives_up_when_the_others_poll() -> None:
    assert _polled(lambda done: time.sleep(0.01)) is None
    assert _polled(lambda done: time.sleep(0)) is None
    assert _polled(lambda done: done.wait(timeout=1)) is None
    assert _polled(lambda done: None) is None


def test_it_gives_up_before_another_thread_takes_it_for_a_failure() -> None:
    def program(log: Log, seconds: float) -> tuple[bool | None, bool]:
        done = threading.Event()
        results: list[bool] = []
        thread = threading.Thread(target=lambda: results.append(done.wait(timeout=seconds)))
        thread.start()
        answer = held_up(log, lambda: bool(results))
        done.set()
        thread.join()
        return answer, results[0]

    assert watched(lambda log: program(log, 60))[1] == (None, True)
    assert watched(lambda log: program(log, 0.5))[1] == (True, False)


def test_it_gives_up_when_the_others_keep_each_other_busy() -> None:
    def program(log: Log) -> bool | None:
        balls = [queue.Queue[bool](), queue.Queue[bool]()]
        ended = False

        def play(mine: int) -> None:
            going = True
            while going:
                going = balls[mine].get() and not ended
                balls[1 - mine].put(going)

        threads = [threading.Thread(target=play, args=(i,)) for i in (0, 1)]
        for thread in threads:
            thread.start()
        balls[0].put(True)
        answer = held_up(log, lambda: False)
        ended = True
        for thread in threads:
            thread.join()
        return answer

    assert watched(program)[1] is None


def test_of_two_that_are_held_up_the_first_gives_up() -> None:
    def program(log: Log) -> list[Any]:
        seen: list[Any] = []
        thread = threading.Thread(target=lambda: seen.append(held_up(log, lambda: False)))
        thread.start()
        seen.append(held_up(log, lambda: bool(seen)))
        thread.join()
        return seen

    assert alone(program) == [False, True]


def test_a_deadlock_of_the_others_is_seen_when_it_has_given_up() -> None:
    def body() -> list[str]:
        def program(log: Log) -> list[str]:
            lock = threading.Lock()
            lock.acquire()
            seen = []

            def work() -> None:
                seen.append(str(held_up(log, lambda: False)))
                lock.acquire()

            threading.Thread(target=work).start()
            try:
                lock.acquire()
            except Deadlock as error:
                seen.append(str(error))
            return seen

        result: list[str] = watched(program)[1]
        return result

    answer, text = in_child(body)
    assert answer == "False"
    assert "thread 0 'main' (waits for a lock)" in text
    assert "thread 1 'Thread-1 (work)' (waits for a lock)" in text


# -- the same on the virtual GPU: a sync behind a step that an order holds back --------------------


@dataclass
class Ran:
    output: object
    broken: tuple[Order, ...]
    trace: Trace
    given_up: tuple[Order, ...]


def run(program: Callable[[], object], schedule: Schedule) -> Ran:
    def body() -> Ran:
        with VirtualGPU(schedule) as gpu:
            output = program()
            record = gpu.finish()
        return Ran(output, record.broken, record.trace, record.given_up)

    return in_child(body)


def late_sync() -> list[float]:
    side = torch.cuda.Stream()
    host = torch.zeros(N, pin_memory=True)
    ready = threading.Event()

    def work() -> None:
        with torch.cuda.stream(side):
            host.copy_(torch.full((N,), 7.0, device="cuda"), non_blocking=True)
        ready.set()
        side.synchronize()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    got: list[float] = host.tolist()
    thread.join()
    return got


def early_read(policy: str) -> Schedule:
    copy = "work:aten.copy_@host Thread-1 (work)#1"
    return Schedule(policy, orders=(Order("late_sync:tolist#1", copy),))  # type: ignore[arg-type]


def test_a_held_copy_waits_for_the_read_of_another_thread() -> None:
    for policy in ("serial", "lazy"):
        ran = run(late_sync, early_read(policy))
        assert (ran.output, ran.broken) == ([0.0] * N, ())


def test_without_an_order_the_host_threads_run_as_recorded() -> None:
    for schedule in (Schedule(), LAZY):
        assert run(late_sync, schedule).output == [7.0] * N


def test_two_runs_of_one_schedule_are_alike() -> None:
    first, second = (run(late_sync, early_read("lazy")) for _ in range(2))
    assert first.trace == second.trace


def test_an_order_on_a_step_of_the_same_thread_is_broken_at_once() -> None:
    """Nobody else can help: the other threads run no earlier than they would."""

    def program() -> list[str]:
        seen: list[str] = []
        thread = runnable(lambda: seen.append("other"))
        torch.ones(N, device="cuda")
        torch.cuda.synchronize()
        seen.append("main")
        torch.ones(N, pin_memory=True).tolist()
        thread.join()
        return seen

    order = Order("program:tolist#1", "program:aten.fill_.Scalar#1")
    ran = run(program, Schedule("lazy", orders=(order,)))
    assert (ran.output, ran.broken) == (["main", "other"], (order,))


def test_an_order_that_no_thread_lets_be_kept_is_broken() -> None:
    """Main reads only after the worker's wait: the flag says so, which no order knows."""

    def program() -> list[float]:
        side = torch.cuda.Stream()
        host = torch.zeros(N, pin_memory=True)
        done: list[int] = []

        def work() -> None:
            with torch.cuda.stream(side):
                host.copy_(torch.full((N,), 7.0, device="cuda"), non_blocking=True)
            side.synchronize()
            done.append(1)

        thread = threading.Thread(target=work)
        thread.start()
        while not done:
            time.sleep(0.01)
        got: list[float] = host.tolist()
        thread.join()
        return got

    order = Order("program:tolist#1", "work:aten.copy_@host Thread-1 (work)#1")
    ran = run(program, Schedule(orders=(order,)))
    assert (ran.output, ran.broken) == ([7.0] * N, (order,))


def test_a_host_step_waits_for_a_step_that_another_thread_has_yet_to_issue() -> None:
    def program() -> list[float]:
        side = torch.cuda.Stream()
        host = torch.zeros(N, pin_memory=True)

        def body() -> None:
            with torch.cuda.stream(side):
                host.copy_(torch.full((N,), 7.0, device="cuda"), non_blocking=True)

        thread = runnable(body)
        got: list[float] = host.tolist()
        thread.join()
        return got

    assert run(program, Schedule()).output == [0.0] * N
    order = Order("body:aten.copy_@host Thread-1 (work)#1", "program:tolist#1")
    ran = run(program, Schedule(orders=(order,)))
    assert (ran.output, ran.broken) == ([7.0] * N, ())


# -- calls of host threads in another order --------------------------------------------------------


def two_calls() -> list[float]:
    device = torch.zeros(N, device="cuda")
    threads = [threading.Thread(target=lambda: device.add_(1)),
               threading.Thread(target=lambda: device.mul_(5))]  # fmt: skip
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return device.tolist()


ADD = "<lambda>:aten.add_.Tensor@host Thread-1 (<lambda>)#1"
MUL = "<lambda>:aten.mul_.Tensor@host Thread-2 (<lambda>)#1"


def test_a_call_waits_until_another_thread_has_made_its_own() -> None:
    assert run(two_calls, Schedule()).output == [5.0] * N
    policies: tuple[Policy, ...] = ("serial", "lazy")
    for policy in policies:
        ran = run(two_calls, Schedule(policy, calls=(Order(MUL, ADD),)))
        assert (ran.output, ran.broken, ran.given_up) == ([1.0] * N, (), ())


def test_a_call_that_comes_first_anyhow_is_not_kept_back() -> None:
    ran = run(two_calls, Schedule(calls=(Order(ADD, MUL),)))
    assert (ran.output, ran.broken) == ([5.0] * N, ())


def test_calls_in_a_circle_break_and_are_not_given_up() -> None:
    """Both wait for each other: no thread can ever make the first call."""
    ran = run(two_calls, Schedule(calls=(Order(MUL, ADD), Order(ADD, MUL))))
    assert (len(ran.broken), ran.given_up) == (1, ())


def test_a_call_that_the_other_thread_polls_for_is_given_up() -> None:
    def program() -> list[float]:
        device = torch.zeros(N, device="cuda")
        done: list[int] = []

        def add() -> None:
            device.add_(1)
            done.append(1)

        def multiply() -> None:
            while not done:
                time.sleep(0.01)
            device.mul_(5)

        threads = [threading.Thread(target=add), threading.Thread(target=multiply)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return device.tolist()

    order = Order("multiply:aten.mul_.Tensor@host Thread-2 (multiply)#1",
                  "add:aten.add_.Tensor@host Thread-1 (add)#1")  # fmt: skip
    ran = run(program, Schedule(calls=(order,)))
    assert (ran.output, ran.broken, ran.given_up) == ([5.0] * N, (order,), (order,))
