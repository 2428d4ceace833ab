"""Run a function in a forked child, so that whatever it does to the process ends with it."""

from __future__ import annotations

import faulthandler
import functools
import gc
import os
import pickle
import sys
import traceback
from collections.abc import Callable
from multiprocessing.connection import Connection, Pipe, wait
from typing import NoReturn, TypeVar

import pytest
import torch

T = TypeVar("T")


_inside = False  # this process is a child already, and its parent has a limit


@functools.cache
def preload() -> None:
    """One forward operator here, so that children do not each pay for torch's lazy start.

    No backward: a process that has run one cannot fork children that run another.
    """
    from redgreen.virtual import VirtualGPU, prepare

    torch.set_num_threads(1)
    with VirtualGPU() as gpu:
        torch.zeros(2, device="cuda").add(1)
        gpu.finish()
    prepare()
    gc.collect()
    gc.freeze()  # else a collection in a child copies every page


class ChildFailure(AssertionError):
    """The function raised in the child (the message has its traceback), or the child died."""


class ChildDied(ChildFailure):
    """There was no answer: it died, or was over its time."""


def in_child(call: Callable[[], T], limit: float = 120.0) -> T:
    """``call()`` in a forked child; its result must pickle. A child over ``limit`` s is ended."""
    sys.stdout.flush()
    sys.stderr.flush()
    reader, writer = Pipe(duplex=False)
    pid = os.fork()
    if pid == 0:
        reader.close()
        _child(call, writer, limit)
    writer.close()
    ended = os.pidfd_open(pid)
    try:
        ready = wait([reader, ended])
        # A grandchild may keep the pipe open, so the end of the child counts as the end of it.
        answer = reader.recv_bytes() if reader in ready or reader.poll() else None
    except EOFError:
        answer = None
    finally:
        os.close(ended)
        reader.close()
        status = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
    if answer is None:
        raise ChildDied(f"the child died with status {status} (over {limit} s ends it too)")
    kind, value = pickle.loads(answer)
    if kind == "skipped":
        pytest.skip(value)
    if kind == "failed":
        raise ChildFailure(value)
    result: T = value
    return result


def _child(call: Callable[[], object], writer: Connection, limit: float) -> NoReturn:
    global _inside
    if not _inside:  # a fork inherits the timer's lock without its thread: a second one would wait
        faulthandler.dump_traceback_later(limit, exit=True, file=sys.__stderr__)
    _inside = True
    answer: tuple[str, object]
    try:
        answer = ("returned", call())
    except pytest.skip.Exception as skipped:
        answer = ("skipped", str(skipped))
    except BaseException:
        answer = ("failed", traceback.format_exc())
    try:
        data = pickle.dumps(answer)
    except BaseException:
        data = pickle.dumps(("failed", traceback.format_exc()))
    writer.send_bytes(data)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)
