"""Installation reaches what programs use, and its end leaves nothing behind."""

from __future__ import annotations

import _thread
import concurrent.futures
import logging
import multiprocessing.connection
import os
import queue
import socket
import sys
import threading
import time
from threading import Event, Lock, RLock
from time import sleep

import pytest

from redgreen.threads import Control, active, current_agent
from redgreen.threads.locks import Lock as ControlledLock
from tests.child import in_child
from tests.threads.log import Log, watched

module_lock = threading.Lock()
module_reentrant = threading.RLock()
module_condition = threading.Condition()
module_event = threading.Event()
module_queue: queue.Queue[int] = queue.Queue()


def snapshot() -> dict[str, object]:
    owners = [threading, _thread, time, queue, concurrent.futures.thread, concurrent.futures._base]
    owners += [threading.Thread, threading.Event, socket.socket, concurrent.futures.Future]
    owners += [multiprocessing.connection, multiprocessing.connection.Connection]
    owners += [multiprocessing.synchronize.SemLock, concurrent.futures.ThreadPoolExecutor]
    owners += [sys.modules[__name__], module_condition, module_queue, module_event]
    return {f"{owner} {name}": value for owner in owners for name, value in vars(owner).items()}


def test_the_end_of_control_restores_everything() -> None:
    before = snapshot()
    with Control():
        assert snapshot() != before
    assert snapshot() == before
    assert active() is None


def test_a_failing_subject_restores_everything_too() -> None:
    before = snapshot()
    with pytest.raises(ZeroDivisionError), Control():
        _ = 1 / 0
    assert snapshot() == before


def test_a_module_imported_meanwhile_is_restored_too(
    tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(tmp_path))
    with open(f"{tmp_path}/imported_meanwhile.py", "w") as file:
        file.write("from threading import Lock\nfrom time import sleep\n")
    with Control():
        import imported_meanwhile

        assert imported_meanwhile.Lock is ControlledLock
    assert imported_meanwhile.Lock is threading.Lock
    assert imported_meanwhile.sleep is time.sleep
    del sys.modules["imported_meanwhile"]


def test_control_does_not_nest() -> None:
    with Control(), pytest.raises(RuntimeError, match="already"), Control():
        pass


def test_names_bound_before_installation_are_under_control() -> None:
    def program(log: Log) -> bool:
        sleep(1000)
        lock, reentrant = Lock(), RLock()
        assert not Event().wait(1000)
        with reentrant, reentrant:
            pass
        return isinstance(lock, ControlledLock) and isinstance(reentrant, ControlledLock)

    assert watched(program)[1]


def test_module_level_objects_from_before_are_under_control() -> None:
    """Held by one thread that waits, wanted by another: real ones would stop both."""

    def program(log: Log) -> list[str]:
        seen: list[str] = []

        def hold() -> None:
            with module_lock, module_reentrant, module_condition:
                time.sleep(1)
                seen.append("held")
            module_event.set()
            module_queue.put(1)

        thread = threading.Thread(target=hold)
        thread.start()
        with module_lock, module_reentrant, module_condition:
            seen.append("taken")
        assert module_event.wait(5)
        seen.append(str(module_queue.get(timeout=5)))
        thread.join()
        module_event.clear()
        return seen

    assert watched(program)[1] == ["held", "taken", "1"]
    assert not module_lock.locked()


class Slow(logging.Handler):
    def emit(self, record: logging.LogRecord) -> None:
        time.sleep(1)


def test_a_handler_from_before_that_waits_does_not_stop_the_others() -> None:
    logger = logging.getLogger("redgreen.tests.slow")
    handler = Slow()
    logger.addHandler(handler)
    before = handler.lock

    def program(log: Log) -> None:
        thread = threading.Thread(target=logger.error, args=("one",))
        thread.start()
        logger.error("two")
        thread.join()

    watched(program)
    logger.removeHandler(handler)
    assert handler.lock is before


def test_a_thread_object_from_before_can_be_started() -> None:
    thread = threading.Thread(target=lambda: time.sleep(1000))

    def program(log: Log) -> bool:
        thread.start()
        thread.join()
        return thread.is_alive()

    assert watched(program)[1] is False


def test_a_pool_from_before_that_has_not_run_is_under_control() -> None:
    pool = concurrent.futures.ThreadPoolExecutor(2)

    def program(log: Log) -> list[int]:
        return [pool.submit(current_agent).result(), pool.submit(current_agent).result()]

    log, agents = watched(program)
    assert set(agents) <= {1, 2}
    assert log.control is not None and log.control.uncontrolled == []
    pool.shutdown()


def test_a_pool_from_before_that_has_run_works_and_is_reported() -> None:
    pool = concurrent.futures.ThreadPoolExecutor(1)
    pool.submit(int).result()
    log, agent = watched(lambda log: pool.submit(current_agent).result(timeout=20))
    assert agent == -1
    assert log.control is not None
    assert log.control.uncontrolled == ["a thread pool that ran before the subject"]
    pool.shutdown()


def test_raw_threads_are_under_control() -> None:
    def program(log: Log) -> list[int]:
        seen: list[int] = []
        _thread.start_new_thread(lambda: seen.append(current_agent()), ())
        time.sleep(1)
        return seen

    assert watched(program)[1] == [1]


def test_each_new_thread_runs_the_hook_first() -> None:
    def program(log: Log) -> list[str]:
        local = threading.local()
        seen: list[str] = []
        assert log.control is not None
        log.control.on_thread(lambda: setattr(local, "ready", "ready"))
        thread = threading.Thread(target=lambda: seen.append(local.ready))
        thread.start()
        thread.join()
        return seen

    assert watched(program)[1] == ["ready"]


def test_threads_that_outlive_the_subject_stop_and_then_go_on_freely() -> None:
    """They take no step after ``freeze``; when control ends they continue with real locks."""
    control = Control()
    go = _thread.allocate_lock()
    go.acquire()
    steps: list[str] = []
    with control:
        ready = threading.Event()

        def work() -> None:
            ready.wait()
            steps.append("on")
            go.release()

        thread = threading.Thread(target=work, name="left", daemon=True)
        thread.start()
        ready.set()
        control.freeze()
        time.sleep(0)
        assert steps == [] and control.alive() == ["left"]
    thread.join()
    assert steps == ["on"]


def test_locks_made_under_control_work_afterwards() -> None:
    with Control():
        lock, reentrant, items = threading.Lock(), threading.RLock(), queue.SimpleQueue[int]()
    thread = threading.Thread(target=lambda: items.put(1))
    with lock, reentrant, reentrant:
        assert not lock.acquire(timeout=0.01)
        thread.start()
    assert items.get() == 1
    thread.join()


def test_locks_check_their_arguments() -> None:
    def program(log: Log) -> None:
        for lock in (threading.Lock(), threading.RLock()):
            with pytest.raises(ValueError):
                lock.acquire(False, 1)
            with lock, pytest.raises(ValueError):
                threading.Lock().acquire(True, -2)
            with pytest.raises(RuntimeError):
                lock.release()

    watched(program)


def test_control_works_in_a_forked_child() -> None:
    def program(log: Log) -> list[int]:
        with concurrent.futures.ThreadPoolExecutor(2) as pool:
            return list(pool.map(lambda n: n * n, range(5)))

    assert in_child(lambda: watched(program)[1]) == [0, 1, 4, 9, 16]


def test_a_process_that_the_subject_forks_is_free() -> None:
    def program(log: Log) -> int:
        pid = os.fork()
        if pid == 0:
            thread = threading.Thread(target=lambda: time.sleep(0.01))
            thread.start()
            thread.join()
            os._exit(7 if active() is None else 8)
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    assert watched(program)[1] == 7
