from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from redgreen import process
from redgreen.process import forked


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"  # killed, and waiting for init to notice


def children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


BEFORE: set[str] = set()


@pytest.fixture(autouse=True)
def before() -> None:  # other tests of this process may have left a server
    BEFORE.clear()
    BEFORE.update(children())


def no_children() -> bool:
    return children() <= BEFORE


def test_a_large_payload_and_noise_on_both_streams_arrive_whole() -> None:
    def work() -> bytes:
        print("o" * 300_000)
        print("e" * 300_000, file=sys.stderr)
        os.write(1, b"raw")
        return b"x" * 5_000_000

    ended = forked(work, 20)
    assert ended.how == "sent"
    assert ended.payload == b"x" * 5_000_000
    assert ended.stdout.count(b"o") == 300_000 and b"raw" in ended.stdout
    assert ended.stderr.count(b"e") == 300_000
    assert no_children()


def test_nothing_reaches_the_parents_streams(capfd: pytest.CaptureFixture[str]) -> None:
    print("unflushed before the fork", end="")
    forked(lambda: str(os.system("echo from a shell")).encode(), 20)
    out, err = capfd.readouterr()
    assert (out, err) == ("unflushed before the fork", "")


@pytest.mark.parametrize(
    ("act", "cause"),
    [
        (lambda: os.kill(os.getpid(), signal.SIGSEGV), "SIGSEGV"),
        (lambda: os.kill(os.getpid(), signal.SIGKILL), "SIGKILL"),
        (lambda: os.abort(), "SIGABRT"),
        (lambda: os._exit(3), "the process ended itself with exit status 3"),
        (lambda: os._exit(0), "the process ended itself with exit status 0"),
    ],
)
def test_death_is_told_by_its_cause(act: object, cause: str) -> None:
    ended = forked(act, 20)  # type: ignore[arg-type]
    assert (ended.how, ended.cause, ended.payload) == ("died", cause, None)
    assert no_children()


def test_a_fatal_signal_leaves_the_stack() -> None:
    def offender() -> bytes:
        os.kill(os.getpid(), signal.SIGSEGV)
        return b""

    assert "offender" in forked(offender, 20).stacks


def test_a_child_over_its_time_is_killed_and_its_stack_is_kept() -> None:
    def busy_loop() -> bytes:
        print("before")
        sys.stdout.flush()
        while True:
            pass

    begin = time.monotonic()
    ended = forked(busy_loop, 0.3)
    assert ended.how == "timeout"
    assert "busy_loop" in ended.stacks
    assert ended.stdout == b"before\n"
    assert time.monotonic() - begin < 5
    assert no_children()


def test_signals_that_the_child_ignores_do_not_keep_it_alive() -> None:
    def deaf() -> bytes:
        for number in set(signal.Signals) - {signal.SIGKILL, signal.SIGSTOP}:
            with contextlib.suppress(OSError, ValueError):
                signal.signal(number, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        time.sleep(60)
        return b""

    assert forked(deaf, 0.2).how == "timeout"


def test_a_stopped_child_is_over_its_time() -> None:
    assert forked(lambda: os.kill(os.getpid(), signal.SIGSTOP) or b"", 0.2).how == "timeout"


def test_grandchildren_are_killed_even_if_they_hold_the_pipes() -> None:
    def work() -> bytes:
        child = subprocess.Popen(["sleep", "60"])
        forked_pid = os.fork()
        if forked_pid == 0:
            time.sleep(60)
            os._exit(0)
        return f"{child.pid} {forked_pid}".encode()

    begin = time.monotonic()
    ended = forked(work, 20)
    assert ended.payload is not None
    pids = [int(pid) for pid in ended.payload.split()]
    while any(map(alive, pids)) and time.monotonic() - begin < 10:
        time.sleep(0.01)
    assert not any(map(alive, pids))
    assert time.monotonic() - begin < 10


def test_a_fork_that_comes_back_into_the_work_sends_nothing() -> None:
    def work() -> bytes:
        pid = os.fork()
        if pid:
            os.waitpid(pid, 0)
        return b"once"

    assert forked(work, 20).payload == b"once"


def test_printing_without_end_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process, "OUTPUT_LIMIT", 100_000)

    def work() -> bytes:
        while True:
            print("again")

    assert forked(work, 20).how == "flooded"


def test_reading_standard_input_ends_at_once() -> None:
    assert forked(lambda: sys.stdin.read().encode() + b"end", 20).payload == b"end"


def test_an_error_of_the_work_is_told_on_stderr() -> None:
    def work() -> bytes:
        raise KeyError("reason")

    ended = forked(work, 20)
    assert ended.cause.endswith("exit status 70")
    assert b"KeyError: 'reason'" in ended.stderr


def test_descriptors_do_not_leak() -> None:
    forked(lambda: b"", 20)
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(5):
        forked(lambda: b"", 20)
        forked(lambda: os._exit(1), 20)
    assert len(os.listdir("/proc/self/fd")) == before


def test_an_interrupt_kills_the_child_first() -> None:
    signal.signal(signal.SIGALRM, lambda *_: (_ for _ in ()).throw(KeyboardInterrupt()))
    signal.setitimer(signal.ITIMER_REAL, 0.3)
    try:
        with pytest.raises(KeyboardInterrupt):
            forked(lambda: time.sleep(60) or b"", 20)  # type: ignore[func-returns-value]
    finally:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
    assert no_children()
