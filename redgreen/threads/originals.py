"""The interpreter's own primitives, taken when this package is imported and never replaced.

Everything in this package that must really block, start or read a clock uses these names; the names
that the program uses are exchanged while control is installed.
"""

from __future__ import annotations

import _thread
import time

allocate_lock = _thread.allocate_lock
LockType = _thread.LockType
RLockType = _thread.RLock
start_new_thread = _thread.start_new_thread
# 3.13 starts threading.Thread through this one; earlier versions do not have it.
start_joinable_thread = getattr(_thread, "start_joinable_thread", None)
get_ident = _thread.get_ident
sleep = time.sleep
monotonic = time.monotonic
