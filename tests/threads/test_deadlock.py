"""When nobody can ever run again, the main thread is told who waits where.

Each runs in a child: a test process may have threads of its own, one of which might come to the
rescue for all that control knows.
"""

from __future__ import annotations

import contextlib
import queue
import threading

from redgreen.threads import Deadlock
from tests.child import in_child
from tests.threads.log import Log, watched


def cross(log: Log) -> str:
    first, second = threading.Lock(), threading.Lock()
    meet = threading.Barrier(2)

    def other_order() -> None:
        with second:
            meet.wait()
            with first:
                pass

    thread = threading.Thread(target=other_order, name="other")
    thread.start()
    try:
        with first:
            meet.wait()
            with second:
                pass
    except Deadlock as error:
        return str(error)
    return "no deadlock"


def test_a_deadlock_names_each_thread_and_its_stack() -> None:
    def body() -> str:
        return str(watched(cross)[1])

    text = in_child(body)
    assert "thread 0 'main' (waits for a lock)" in text
    assert "thread 1 'other' (waits for a lock)" in text
    assert "in other_order" in text and "with first:" in text
    assert "redgreen/threads" not in text


def test_the_same_locks_in_one_order_do_not_deadlock() -> None:
    def program(log: Log) -> str:
        first, second = threading.Lock(), threading.Lock()

        def work() -> None:
            with first, second:
                pass

        thread = threading.Thread(target=work)
        thread.start()
        work()
        thread.join()
        return "done"

    assert watched(program)[1] == "done"


def test_a_swallowed_deadlock_is_remembered() -> None:
    def body() -> tuple[bool, bool]:
        def program(log: Log) -> bool:
            try:
                queue.Queue().get()
            except BaseException:
                return True
            return False

        log, swallowed = watched(program)
        assert log.control is not None
        return swallowed, log.control.deadlock is not None

    assert in_child(body) == (True, True)


def test_a_deadlock_is_not_an_exception_that_programs_handle() -> None:
    assert not issubclass(Deadlock, Exception)


def test_the_other_threads_of_a_deadlock_end_with_control() -> None:
    def body() -> int:
        def program(log: Log) -> None:
            threading.Thread(target=lambda: threading.Event().wait()).start()
            with contextlib.suppress(Deadlock):
                threading.Event().wait()

        watched(program)
        for thread in threading.enumerate():
            if thread is not threading.main_thread():
                thread.join()
        return threading.active_count()

    assert in_child(body) == 1
