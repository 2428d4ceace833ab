"""Calls that really block let the other threads go on; what never comes back is reported."""

from __future__ import annotations

import asyncio
import multiprocessing
import multiprocessing.pool
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from typing import Any

import pytest

from redgreen.threads import Control, Watchdog
from tests.child import in_child
from tests.threads.log import Log, watched


def test_a_pipe_that_a_controlled_thread_feeds() -> None:
    def program(log: Log) -> Any:
        reader, writer = multiprocessing.Pipe(duplex=False)

        def feed() -> None:
            time.sleep(1)
            writer.send("fed")

        thread = threading.Thread(target=feed)
        thread.start()
        answer = reader.recv()
        thread.join()
        return answer

    assert watched(program)[1] == "fed"


def test_a_socket_between_two_controlled_threads() -> None:
    def program(log: Log) -> bytes:
        one, two = socket.socketpair()
        with one, two:
            thread = threading.Thread(target=lambda: two.sendall(two.recv(4)[::-1]))
            thread.start()
            one.sendall(b"ping")
            answer = one.recv(4)
            thread.join()
        return answer

    assert watched(program)[1] == b"gnip"


def test_a_process_and_its_queue() -> None:
    def program(log: Log) -> list[int]:
        context = multiprocessing.get_context("fork")
        tasks: Any = context.Queue()
        results: Any = context.Queue()
        process = context.Process(target=_square, args=(tasks, results))
        process.start()
        for n in (1, 2, 3, None):
            tasks.put(n)
        answers = [results.get(timeout=30) for _ in range(3)]
        process.join()
        return answers

    assert watched(program)[1] == [1, 4, 9]


def _square(tasks: Any, results: Any) -> None:
    for n in iter(tasks.get, None):
        results.put(n * n)


def test_a_subprocess_runs_while_others_work() -> None:
    def program(log: Log) -> tuple[int, bool]:
        thread = threading.Thread(target=log.step, args=("other",))
        thread.start()
        code = subprocess.run([sys.executable, "-c", "exit(4)"], check=False).returncode
        thread.join()
        return code, thread.is_alive()

    assert watched(program)[1] == (4, False)


def test_a_data_loader_with_workers_gives_one_log() -> None:
    """Which worker is first is not under control, but no step depends on it."""
    import torch
    from torch.utils.data import DataLoader

    def program(log: Log) -> None:
        for batch in DataLoader(range(24), batch_size=4, num_workers=2):  # type: ignore[arg-type]
            log.step(batch.sum().item())

    torch.set_num_threads(1)
    logs = [in_child(lambda: watched(program)[0].essential()) for _ in range(10)]
    assert all(log == logs[0] for log in logs)


def test_threads_come_back_lowest_number_first() -> None:
    def program(log: Log) -> list[int]:
        assert log.control is not None
        seen: list[int] = []
        pipes = [multiprocessing.Pipe(duplex=False) for _ in range(3)]
        messages = [_message(n) for n in range(3)]
        threads = [
            threading.Thread(target=lambda reader=reader: seen.append(reader.recv()))
            for reader, _ in pipes
        ]
        for thread in threads:
            thread.start()
        for count, n in enumerate((1, 2, 0), start=1):
            os.write(pipes[n][1].fileno(), messages[n])
            while len(log.control.baton._returned) < count:
                pass
        for thread in threads:
            thread.join()
        return seen

    assert watched(program)[1] == [0, 1, 2]


def _message(n: int) -> bytes:
    reader, writer = multiprocessing.Pipe(duplex=False)
    writer.send(n)
    return os.read(reader.fileno(), 1000)


def test_a_free_semaphore_of_multiprocessing_is_no_reason_to_switch() -> None:
    def program(log: Log) -> list[str]:
        lock = multiprocessing.get_context("fork").Lock()
        seen: list[str] = []
        ready = threading.Event()
        thread = threading.Thread(target=lambda: ready.wait() and seen.append("other"))
        thread.start()
        ready.set()
        lock.acquire()
        lock.release()
        seen.append("main")
        thread.join()
        return seen

    assert watched(program)[1] == ["main", "other"]


@pytest.mark.parametrize("pin_memory", [False, True])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_data_loader(workers: int, pin_memory: bool) -> None:
    import torch
    from torch.utils.data import DataLoader, TensorDataset

    def program(log: Log) -> list[float]:
        data = TensorDataset(torch.arange(16.0))
        loader = DataLoader(data, batch_size=4, num_workers=workers, pin_memory=pin_memory)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return [batch[0].sum().item() for _ in range(2) for batch in loader]

    def body() -> list[float]:
        result: list[float] = watched(program)[1]
        return result

    assert in_child(body) == [6, 22, 38, 54] * 2


def test_an_event_loop_and_its_threads() -> None:
    def program(log: Log) -> list[int]:
        async def main() -> list[int]:
            await asyncio.sleep(0.01)
            return list(await asyncio.gather(*(asyncio.to_thread(abs, -n) for n in range(4))))

        return asyncio.run(main())

    assert watched(program)[1] == [0, 1, 2, 3]


def test_a_thread_pool_of_multiprocessing() -> None:
    def program(log: Log) -> list[int]:
        with multiprocessing.pool.ThreadPool(2) as pool:
            return pool.map(abs, [-1, -2, -3])

    assert watched(program)[1] == [1, 2, 3]


def test_the_watchdog_reports_a_thread_that_blocks_outside() -> None:
    def body() -> tuple[str, str]:
        fired: list[tuple[str, str]] = []
        reader, writer = os.pipe()

        def report(reason: str, stacks: str) -> None:
            fired.append((reason, stacks))
            os.write(writer, b"x")  # lets the subject end, so that the test can

        control = Control()
        with control, Watchdog(control, 0.2, report):
            os.read(reader, 1)
        return fired[0]

    reason, stacks = in_child(body)
    assert "0.2 s" in reason
    assert "thread 0 'main' (running)" in stacks and "os.read(reader, 1)" in stacks


def test_the_watchdog_does_not_fire_while_steps_are_made() -> None:
    fired: list[str] = []
    control = Control()
    with control, Watchdog(control, 0.5, lambda reason, stacks: fired.append(reason)):
        begin = time.monotonic()
        while time.monotonic() - begin < 1:
            control.step()
    assert fired == []


def test_the_watchdog_ends_a_run_that_lasts_too_long() -> None:
    fired: list[str] = []
    control = Control()
    with control, Watchdog(control, 60, lambda reason, stacks: fired.append(reason), total=0.1):
        while not fired:
            control.step()
    assert "longer than 0.1 s" in fired[0]


def test_a_lock_held_by_an_uncontrolled_thread_is_waited_for() -> None:
    shared: dict[str, Any] = {}
    made, held = threading.Event(), threading.Event()

    def stranger() -> None:
        made.wait()
        with shared["lock"]:
            held.set()
            time.sleep(0.05)
            shared["done"] = True

    thread = threading.Thread(target=stranger)
    thread.start()

    def program(log: Log) -> bool:
        shared["lock"] = threading.Lock()
        made.set()
        held.wait()
        with shared["lock"]:
            return bool(shared["done"])

    log, done = watched(program)
    assert done and log.control is not None
    # Threads of whoever runs the tests may do so as well.
    said = "a thread that is not under control used a lock that is"
    assert set(log.control.uncontrolled) == {said}
    thread.join()
