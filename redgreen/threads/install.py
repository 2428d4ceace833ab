"""Exchanging the interpreter's primitives for controlled ones, and back.

Three ways, because programs reach a primitive in three ways: as an attribute of a class, as a name
in a module (``threading.Lock``, but also what ``from threading import Lock`` bound before), and as
an object that a module made when it was imported (a module-level lock or condition).
"""

from __future__ import annotations

import _thread
import concurrent.futures.thread
import itertools
import logging
import multiprocessing.connection
import multiprocessing.synchronize
import queue
import threading
from typing import TYPE_CHECKING, Any

from redgreen.threads import bindings, calls, handover, originals
from redgreen.threads.agent import current
from redgreen.threads.identity import number, numbered_init
from redgreen.threads.locks import Lock, RLock
from redgreen.threads.outside import METHODS, around, semaphore_methods

if TYPE_CHECKING:
    from redgreen.threads.control import Control

_ABSENT = object()


class Patches:
    def __init__(self, control: Control) -> None:
        self._control = control
        self._back: dict[int, Any] = {}  # id of a replacement -> the original
        self._attributes: list[tuple[Any, str, Any]] = []
        self._adopted: list[tuple[dict[str, Any], str, Any]] = []

    def apply(self) -> None:
        control = self._control
        starter = calls.start_new_thread(control)
        new: dict[str, Any] = {
            "allocate_lock": Lock,
            "Lock": Lock,
            "start_new_thread": starter,
            "sleep": calls.sleep,
            "SimpleQueue": calls.SimpleQueue,
            "wait": around(multiprocessing.connection.wait),
            **{name: calls.clock(control, name) for name in bindings.CLOCKS},
        }
        bindings.survey()
        for name, old in bindings.ORIGINALS.items():
            self._back[id(new[name])] = old
        bindings.exchange({id(old): new[name] for name, old in bindings.ORIGINALS.items()})
        self._set_attributes(starter)
        self._adopt()

    def undo(self) -> None:
        for names, name, old in reversed(self._adopted):
            names[name] = old
        for owner, name, old in reversed(self._attributes):
            if old is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, old)
        bindings.exchange(self._back)
        bindings.exchange_in_new(self._back)  # modules imported meanwhile bound the new ones

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
        for owner, name, method in handover.methods(calls.SimpleQueue):
            self._set(owner, name, method)
        for owner, name in METHODS:
            self._set(owner, name, around(getattr(owner, name)))
        semaphore = multiprocessing.synchronize.SemLock
        self._set(semaphore, "_make_methods", semaphore_methods(semaphore._make_methods))  # type: ignore[attr-defined]
        pool = concurrent.futures.thread.ThreadPoolExecutor
        self._set(pool, "submit", self._submit(pool.submit))
        # Names of new threads and pools, which programs print, count from 1 in every run.
        self._set(threading, "_counter", itertools.count(1).__next__)
        self._set(pool, "_counter", itertools.count().__next__)
        for owner in (threading.Thread, concurrent.futures.Future):
            self._set(owner, "__init__", numbered_init(owner.__init__))
            self._set(owner, "__hash__", number)
        self._set(concurrent.futures._base, "id", number)  # it sorts futures by id
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
                    self._control.baton.uncontrolled.append(
                        "a thread pool that ran before the subject"
                    )
                else:
                    pool._work_queue = calls.SimpleQueue()
                    pool._idle_semaphore = threading.Semaphore(0)
                    pool._shutdown_lock = threading.Lock()
            agent = current()
            if agent is None:
                return original(pool, function, *args, **kwargs)
            return handover.quietly(agent, original, pool, function, *args, **kwargs)

        return submit

    def _adopt(self) -> None:
        """Wrap the locks that modules made when they were imported."""
        wrappers: dict[int, Lock] = {}
        for names, key, value in bindings.objects():
            if type(value) in bindings.LOCKS:
                self._rebind(names, key, _wrap(value, wrappers))
            else:
                self._adopt_inside(value, wrappers)
        for reference in logging._handlerList:  # type: ignore[attr-defined]
            handler = reference()  # every thread logs, and not every handler is a global
            if handler is not None:
                self._adopt_inside(handler, wrappers)

    def _adopt_inside(self, holder: Any, wrappers: dict[int, Lock]) -> None:
        names = vars(holder)
        for key, value in list(names.items()):
            if type(value) in bindings.LOCKS:
                self._rebind(names, key, _wrap(value, wrappers))
            elif isinstance(value, threading.Condition):
                self._adopt_inside(value, wrappers)
        if isinstance(holder, threading.Condition):  # it keeps its lock's methods, too
            for key in ("acquire", "release", "_release_save", "_acquire_restore", "_is_owned"):
                if key in names:
                    self._rebind(names, key, getattr(names["_lock"], key))

    def _rebind(self, names: dict[str, Any], key: str, value: Any) -> None:
        self._adopted.append((names, key, names[key]))
        names[key] = value


def _wrap(real: Any, wrappers: dict[int, Lock]) -> Lock:
    if id(real) not in wrappers:
        wrappers[id(real)] = (RLock if type(real) is originals.RLockType else Lock)(real)
    return wrappers[id(real)]
