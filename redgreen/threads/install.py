"""Exchanging the interpreter's primitives for controlled ones, and back.

Three ways, because programs reach a primitive in three ways: as an attribute of a class, as a name
in a module (``threading.Lock``, but also what ``from threading import Lock`` bound before), and as
an object that a module made when it was imported (a module-level lock or condition).
"""

from __future__ import annotations

import _thread
import concurrent.futures.thread
import itertools
import multiprocessing.connection
import multiprocessing.synchronize
import queue
import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import TYPE_CHECKING, Any

from redgreen.threads import calls, originals
from redgreen.threads.agent import current
from redgreen.threads.locks import Lock, RLock
from redgreen.threads.outside import METHODS, around, semaphore_methods

if TYPE_CHECKING:
    from redgreen.threads.control import Control

_CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
# Import locks and threading's own registers stay real: they are held for a moment, and never by a
# thread that blocks. The package's own names must stay original.
_KEEP_MODULES = ("_thread", "_frozen_importlib", "importlib._bootstrap", "_queue")
_KEEP_NAMES = frozenset({"LockType", "_LockType"})
_ABSENT = object()


class Patches:
    def __init__(self, control: Control) -> None:
        self._control = control
        self._exchange: dict[int, tuple[Any, Any]] = {}  # id of the old one -> old, new
        self._attributes: list[tuple[Any, str, Any]] = []
        self._adopted: list[tuple[Any, str, Any]] = []

    def apply(self) -> None:
        control = self._control
        starter = calls.start_new_thread(control)
        self._replace(originals.allocate_lock, Lock)
        if isinstance(threading.Lock, type):  # 3.13: the type itself is the factory
            self._replace(threading.Lock, Lock)
        self._replace(originals.start_new_thread, starter)
        self._replace(originals.sleep, calls.sleep)
        self._replace(queue.SimpleQueue, calls.SimpleQueue)
        wait = multiprocessing.connection.wait
        self._replace(wait, around(wait))
        for name in _CLOCKS:
            self._replace(getattr(time, name), calls.clock(control, name))
        _swap_names(self._exchange)
        self._set_attributes(starter)
        self._adopt()

    def undo(self) -> None:
        for owner, name, old in reversed(self._adopted + self._attributes):
            if old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
        self._attributes.clear()
        self._adopted.clear()
        # Look again instead of remembering: modules imported meanwhile bound the new names.
        _swap_names({id(new): (new, old) for old, new in self._exchange.values()})

    def _replace(self, old: Any, new: Any) -> None:
        self._exchange[id(old)] = (old, new)

    def _set(self, owner: Any, name: str, new: Any) -> None:
        self._attributes.append((owner, name, vars(owner).get(name, _ABSENT)))
        setattr(owner, name, new)

    def _set_attributes(self, starter: Any) -> None:
        self._set(_thread, "start_new_thread", starter)
        if originals.start_joinable_thread is not None:
            joinable = calls.start_joinable_thread(self._control)
            self._set(threading, "_start_joinable_thread", joinable)
            self._set(_thread, "start_joinable_thread", joinable)
        self._set(threading, "_CRLock", RLock)  # the function threading.RLock looks it up
        self._set(threading.Thread, "start", calls.start)
        self._set(threading.Thread, "join", calls.join)
        self._set(threading.Thread, "is_alive", calls.is_alive)
        self._set(threading.Event, "is_set", calls.is_set)
        self._set(threading.Event, "isSet", calls.is_set)
        for owner, name in METHODS:
            self._set(owner, name, around(getattr(owner, name)))
        semaphore = multiprocessing.synchronize.SemLock
        self._set(semaphore, "_make_methods", semaphore_methods(semaphore._make_methods))  # type: ignore[attr-defined]
        pool = concurrent.futures.thread.ThreadPoolExecutor
        self._set(pool, "submit", self._submit(pool.submit))
        # Names of new threads and pools, which programs print, count from 1 in every run.
        self._set(threading, "_counter", itertools.count(1).__next__)
        self._set(pool, "_counter", itertools.count().__next__)
        # The library computes what is left of a wait from these two. They must not see real time,
        # or the order in which two equal waits run out would depend on the machine.
        self._set(threading, "_time", self._virtual_time)
        self._set(queue, "time", self._virtual_time)

    def _virtual_time(self) -> float:
        agent = current()
        return originals.monotonic() if agent is None else agent.baton.clock.now

    def _submit(self, original: Any) -> Any:
        """A pool from before: its queue would really block; its threads are out of control."""

        def submit(pool: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
            if current() is not None and not isinstance(pool._work_queue, calls.SimpleQueue):
                idents = {thread.ident for thread in pool._threads if thread.is_alive()}
                if idents:
                    self._control.baton.guests |= idents
                    self._control.uncontrolled.append("a thread pool that ran before the subject")
                else:
                    pool._work_queue = calls.SimpleQueue()
                    pool._idle_semaphore = threading.Semaphore(0)
                    pool._shutdown_lock = threading.Lock()
            return original(pool, function, *args, **kwargs)

        return submit

    def _adopt(self) -> None:
        """Wrap the locks that modules made when they were imported."""
        wrappers: dict[int, Lock] = {}
        for module in _modules():
            if module is threading:
                continue
            for name, value in list(_names(module).items()):
                if type(value) in (originals.LockType, originals.RLockType):
                    self._adopted.append((module, name, value))
                    setattr(module, name, _wrap(value, wrappers))
                elif issubclass(type(value), _HOLDERS):
                    self._adopt_inside(value, wrappers)

    def _adopt_inside(self, holder: Any, wrappers: dict[int, Lock]) -> None:
        for name, value in list(vars(holder).items()):
            if type(value) in (originals.LockType, originals.RLockType):
                self._adopted.append((holder, name, value))
                setattr(holder, name, _wrap(value, wrappers))
            elif isinstance(value, threading.Condition):
                self._adopt_inside(value, wrappers)
        if isinstance(holder, threading.Condition):  # it keeps its lock's methods, too
            for name in ("acquire", "release", "_release_save", "_acquire_restore", "_is_owned"):
                if name in vars(holder) and hasattr(holder._lock, name):  # type: ignore[attr-defined]
                    self._adopted.append((holder, name, vars(holder)[name]))
                    setattr(holder, name, getattr(holder._lock, name))  # type: ignore[attr-defined]


_HOLDERS = (
    threading.Condition,
    threading.Event,
    threading.Semaphore,
    threading.Barrier,
    queue.Queue,
)


def _wrap(real: Any, wrappers: dict[int, Lock]) -> Lock:
    if id(real) not in wrappers:
        wrappers[id(real)] = (RLock if type(real) is originals.RLockType else Lock)(real)
    return wrappers[id(real)]


def _modules() -> Iterator[ModuleType]:
    for name, module in list(sys.modules.items()):
        mine = name.startswith("redgreen.threads")
        if isinstance(module, ModuleType) and name not in _KEEP_MODULES and not mine:
            yield module


def _names(module: ModuleType) -> dict[str, Any]:
    """The module's globals, without making a lazy module load itself."""
    names: dict[str, Any] = object.__getattribute__(module, "__dict__")
    return names


def _swap_names(exchange: dict[int, tuple[Any, Any]]) -> None:
    """Rebind every module global that is one of the old ones."""
    for module in _modules():
        names = _names(module)
        for name, value in list(names.items()):
            found = exchange.get(id(value))
            if found is not None and name not in _KEEP_NAMES:
                names[name] = found[1]
