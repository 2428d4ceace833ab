"""Runs a function in a forked child: what it sent back, how it ended, what it printed.

The child has its own process group, standard streams and a deadline. Whatever happens in it, the
parent's terminal, files and children are as before when ``forked`` returns.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import io
import os
import selectors
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import IO, Literal, NoReturn

OUTPUT_LIMIT = 64 << 20  # bytes printed by one child; more is a loop that prints
_POLL = 0.05  # seconds between looks at a child whose pipes are silent
_STACKS = signal.SIGUSR2  # asks a child for the stacks of its threads
_HEADER = 8  # bytes of length before the payload
_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Ended:
    """How a child ended. ``payload`` is complete or None."""

    how: Literal["sent", "died", "timeout", "flooded"]
    payload: bytes | None
    cause: str  # died: "SIGSEGV" or "exit status 3"
    stdout: bytes
    stderr: bytes
    stacks: str  # timeout, or a fatal signal: the Python stacks of all threads


def forked(work: Callable[[], bytes], timeout: float) -> Ended:
    """Fork, run ``work`` in the child and return what it returned, within ``timeout`` seconds.

    An exception that leaves ``work`` ends the child with status 70 and its traceback on stderr.
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(Exception):  # closed or detached: nothing to flush
            stream.flush()  # or the child would own a copy of what is buffered
    names = ("result", "stdout", "stderr")
    pipes = {name: os.pipe() for name in names}
    with tempfile.TemporaryFile() as stacks:
        parent = os.getpid()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # 3.12: fork in a threaded process
            pid = os.fork()
        if pid == 0:
            _child(work, parent, {name: pipes[name][1] for name in names}, stacks)
        for name in names:
            os.close(pipes[name][1])
        with contextlib.suppress(OSError):  # the child does the same; whoever is first
            os.setpgid(pid, pid)
        try:
            return _collect(pid, {name: pipes[name][0] for name in names}, stacks, timeout)
        finally:
            _end(pid)
            for name in names:
                os.close(pipes[name][0])


def _child(
    work: Callable[[], bytes], parent: int, fds: dict[str, int], stacks: IO[bytes]
) -> NoReturn:
    status = 70
    try:
        os.setpgid(0, 0)
        _die_with(parent)
        _redirect(fds["stdout"], fds["stderr"])
        faulthandler.enable(stacks)
        faulthandler.register(_STACKS, stacks, all_threads=True)
        me = os.getpid()
        payload = work()
        if os.getpid() != me:
            os._exit(0)  # a process that the work forked and that came back here
        sys.stdout.flush()
        sys.stderr.flush()
        ctypes.CDLL(None).fflush(None)  # what C libraries printed
        _write(fds["result"], len(payload).to_bytes(_HEADER, "little"))
        _write(fds["result"], payload)
        status = 0
    except BaseException:
        with contextlib.suppress(BaseException):
            traceback.print_exc()
            sys.stderr.flush()
    finally:
        os._exit(status)  # no exit handlers and no destructors of the parent's objects


def _die_with(parent: int) -> None:
    """Let the kernel kill this process when its parent is killed."""
    with contextlib.suppress(AttributeError):  # not Linux
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(70)


def _redirect(stdout: int, stderr: int) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((null, 0), (stdout, 1), (stderr, 2)):
        os.dup2(source, target)
    sys.stdin = sys.__stdin__ = _stdin()  # type: ignore[misc]
    sys.stdout = sys.__stdout__ = _text(1)  # type: ignore[misc]
    sys.stderr = sys.__stderr__ = _text(2)  # type: ignore[misc]


def _stdin() -> io.TextIOWrapper:
    return io.TextIOWrapper(open(0, "rb", closefd=False), encoding="utf-8")


def _text(fd: int) -> io.TextIOWrapper:
    raw = open(fd, "wb", closefd=False)  # noqa: SIM115 - lives as long as the process
    return io.TextIOWrapper(raw, encoding="utf-8", errors="surrogateescape", line_buffering=fd == 2)


def _write(fd: int, data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(fd, view) :]


def _collect(pid: int, fds: dict[str, int], stacks: IO[bytes], timeout: float) -> Ended:
    buffers = {name: bytearray() for name in fds}
    deadline = time.monotonic() + timeout
    how: Literal["sent", "died", "timeout", "flooded"] = "died"
    cause = ""
    with selectors.DefaultSelector() as selector:
        for name, fd in fds.items():
            os.set_blocking(fd, False)
            selector.register(fd, selectors.EVENT_READ, name)
        while True:
            dead = _ending(pid)  # looked at first: what it wrote before is then in the pipes
            _read(selector, buffers, 0 if dead else _POLL)
            if _complete(buffers["result"]):
                how = "sent"
                break
            if dead:
                cause = dead
                break
            if _printed(buffers) > OUTPUT_LIMIT:
                how = "flooded"
                break
            if time.monotonic() > deadline:
                how = "timeout"
                _ask_for_stacks(pid, stacks)
                break
        # A grandchild may hold the pipes open and go on writing.
        while _printed(buffers) <= 2 * OUTPUT_LIMIT and _read(selector, buffers, 0):
            pass
    payload = bytes(buffers["result"][_HEADER:]) if how == "sent" else None
    return Ended(how, payload, cause, bytes(buffers["stdout"]), bytes(buffers["stderr"]),
                 _text_of(stacks))


def _printed(buffers: dict[str, bytearray]) -> int:
    return len(buffers["stdout"]) + len(buffers["stderr"])


def _read(selector: selectors.BaseSelector, buffers: dict[str, bytearray], wait: float) -> bool:
    """Move what the pipes hold into the buffers; False if there was nothing."""
    if not selector.get_map():
        time.sleep(wait)
        return False
    got = False
    for key, _ in selector.select(wait):
        data = os.read(key.fd, 1 << 20)
        if data:
            buffers[key.data] += data
            got = True
        else:
            selector.unregister(key.fd)
    return got


def _complete(buffer: bytearray) -> bool:
    return len(buffer) >= _HEADER and len(buffer) - _HEADER >= int.from_bytes(
        buffer[:_HEADER], "little"
    )


def _ending(pid: int) -> str:
    """How the child ended, "" while it runs. It stays a zombie, so that its group stays its own."""
    info = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if info is None:
        return ""
    if info.si_code == os.CLD_EXITED:
        return f"the process ended itself with exit status {info.si_status}"
    return signal.Signals(info.si_status).name


def _ask_for_stacks(pid: int, stacks: IO[bytes]) -> None:
    """Give the child's signal handler up to a second to write the stacks of its threads."""
    os.kill(pid, _STACKS)
    patience = time.monotonic() + 1.0
    size = -1
    while time.monotonic() < patience and not (0 < size == os.fstat(stacks.fileno()).st_size):
        size = os.fstat(stacks.fileno()).st_size
        time.sleep(_POLL)


def _text_of(stacks: IO[bytes]) -> str:
    stacks.seek(0)
    return stacks.read().decode("utf-8", "replace")


def _end(pid: int) -> None:
    """Kill the child and whatever it started, and reap it."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(pid, signal.SIGKILL)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)  # if it died before it had a group of its own
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
