"""Which module globals are synchronization primitives.

Looking through every module takes some 20 ms when a large library is loaded. The answer is kept, so
that a template process that calls ``survey`` before it forks saves its children the time; later
only new modules are looked through. A name that an old module binds after that is missed.
"""

from __future__ import annotations

import multiprocessing.connection
import queue
import sys
import threading
import time
from collections.abc import Iterator
from types import ModuleType
from typing import Any

from redgreen.threads import originals

CLOCKS = ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
ORIGINALS: dict[str, Any] = {
    "allocate_lock": originals.allocate_lock,
    "Lock": threading.Lock,  # 3.13: the type; before, the same as allocate_lock
    "start_new_thread": originals.start_new_thread,
    "sleep": originals.sleep,
    "SimpleQueue": queue.SimpleQueue,
    "wait": multiprocessing.connection.wait,
    **{name: getattr(time, name) for name in CLOCKS},
}
LOCKS = (originals.LockType, originals.RLockType)
HOLDERS = (
    threading.Condition,
    threading.Event,
    threading.Semaphore,
    threading.Barrier,
    queue.Queue,
)

# Import locks stay real: they are held for a moment, and never by a thread that blocks.
_KEEP_MODULES = frozenset({"_thread", "_frozen_importlib", "importlib._bootstrap", "_queue"})
_KEEP_NAMES = frozenset({"LockType", "_LockType"})
_ids = frozenset(map(id, ORIGINALS.values()))
_surveyed: set[str] = set()
_count = 0  # modules at the last survey
_functions: list[tuple[dict[str, Any], str]] = []
_objects: list[tuple[dict[str, Any], str]] = []


def survey() -> None:
    """Look through the modules that are new. Call it while control is not installed."""
    global _count
    for name, names in _new_modules():
        _surveyed.add(name)
        for key, value in list(names.items()):
            if id(value) in _ids:
                if key not in _KEEP_NAMES:
                    _functions.append((names, key))
            elif _is_primitive(value) and name != "threading":  # its own registers stay real
                _objects.append((names, key))
    _count = len(sys.modules)


def exchange(replacements: dict[int, Any]) -> None:
    """Rebind every global that is bound to something whose id is a key."""
    for names, key in _functions:
        if id(names.get(key)) in replacements:
            names[key] = replacements[id(names[key])]


def exchange_in_new(replacements: dict[int, Any]) -> None:
    """As ``exchange``, in the modules that were imported since the last survey."""
    for _, names in _new_modules():
        for key, value in list(names.items()):
            if id(value) in replacements:
                names[key] = replacements[id(value)]


def objects() -> Iterator[tuple[dict[str, Any], str, Any]]:
    """Locks, conditions, events, semaphores, barriers and queues that are module globals."""
    for names, key in _objects:
        if _is_primitive(names.get(key)):
            yield names, key, names[key]


def _is_primitive(value: Any) -> bool:
    return type(value) in LOCKS or issubclass(type(value), HOLDERS)


def _new_modules() -> Iterator[tuple[str, dict[str, Any]]]:
    # Looking at a module writes its reference count, which in a forked child copies its page: some
    # 5,000 pages for a large library. The number of modules tells that there is nothing new.
    if len(sys.modules) == _count:
        return
    for name, module in list(sys.modules.items()):
        if name in _surveyed or name in _KEEP_MODULES or name.startswith("redgreen.threads"):
            continue
        if isinstance(module, ModuleType):  # and without making a lazy module load itself
            yield name, object.__getattribute__(module, "__dict__")
