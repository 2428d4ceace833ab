"""Calls that really block, in which something outside this process decides how long.

A thread gives the baton away around such a call, so that the others go on (one of them may feed
the very pipe that it reads), and takes it again afterwards.
"""

from __future__ import annotations

import multiprocessing.connection
import multiprocessing.popen_fork
import multiprocessing.synchronize
import selectors
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache, wraps
from typing import Any

from redgreen.threads.agent import current

Function = Callable[..., Any]

_SOCKET = ("accept", "connect", "recv", "recv_into", "recvfrom", "recvmsg", "send", "sendall")
METHODS: list[tuple[type, str]] = [
    (multiprocessing.connection.Connection, "_recv_bytes"),
    (multiprocessing.connection.Connection, "_send_bytes"),
    (multiprocessing.connection.Connection, "_poll"),
    (multiprocessing.connection.Listener, "accept"),
    (multiprocessing.popen_fork.Popen, "wait"),
    (subprocess.Popen, "wait"),
    (subprocess.Popen, "communicate"),
    *((socket.socket, name) for name in _SOCKET),
    *(
        (getattr(selectors, name), "select")
        for name in ("SelectSelector", "PollSelector", "EpollSelector", "KqueueSelector")
        if hasattr(selectors, name)
    ),
]


@contextmanager
def outside() -> Iterator[None]:
    """Not under control in here. Re-entrant; nothing to do for a thread that is not anyway."""
    agent = current()
    if agent is None:
        yield
        return
    agent.baton.leave(agent)
    try:
        yield
    finally:
        agent.baton.come_back(agent)


@cache
def around(original: Function) -> Function:
    @wraps(original)
    def call(*args: Any, **kwargs: Any) -> Any:
        with outside():
            return original(*args, **kwargs)

    return call


@cache
def semaphore_methods(original: Function) -> Function:
    """For ``multiprocessing.synchronize.SemLock._make_methods``: leave only if it is taken."""

    @wraps(original)
    def make(semaphore: Any) -> None:
        original(semaphore)
        acquire = semaphore.acquire

        def try_first(block: bool = True, timeout: float | None = None) -> bool:
            if acquire(False):
                return True
            if not block:
                return False
            with outside():
                return bool(acquire(True, timeout))

        semaphore.acquire = try_first

    return make
