"""A critical section that a finalizer cannot enter a second time."""

from __future__ import annotations

import gc

from redgreen.threads.originals import allocate_lock


class Section:
    """Mutual exclusion for the baton's tables.

    Only the running thread and threads from outside come here, briefly. The collector is off
    meanwhile: a finalizer that uses a lock would come here again, in the same thread, and hang.
    """

    def __init__(self) -> None:
        self._lock = allocate_lock()
        self._collect = False

    def __enter__(self) -> None:
        collect = gc.isenabled()
        gc.disable()
        self._lock.acquire()
        self._collect = collect

    def __exit__(self, *error: object) -> None:
        collect = self._collect
        self._lock.release()
        if collect:
            gc.enable()
