"""The device guard that C++ asks about PrivateUse1, and exceptions that leave a backward pass.

The guard of a Python backend calls ``type_`` in many places, also in the destructor of the
engine's stream guard. When a hook raises (or an operator in a C++ node), that destructor runs with
the exception set, the call of ``type_`` then fails, and in a destructor that ends the process
(std::terminate). So ``type_`` looks whether an exception is set, keeps it and takes it away: the
engine then unwinds, reports an error without an exception, and `Engine.run_backward` raises the
kept one again.
"""

from __future__ import annotations

import threading
from typing import Any

import torch

_PRIVATEUSE1 = torch._C._autograd.DeviceType.PrivateUse1
_local = threading.local()
_SOME = {"a": None}


class Guard(torch._C._acc.DeviceGuard):
    """One device, one stream: C++ does nothing with either."""

    def type_(self) -> Any:
        try:
            dict(**_SOME)  # CPython checks such calls: with an exception set they raise SystemError
        except SystemError as error:
            if error.__cause__ is None:
                raise
            _kept().append(error.__cause__)
        return _PRIVATEUSE1


def _kept() -> list[BaseException]:
    kept: list[BaseException] | None = getattr(_local, "kept", None)
    if kept is None:
        kept = _local.kept = []
    return kept


def pending() -> int:
    """How many exceptions of this thread are kept now."""
    return len(_kept())


def restored(before: int, error: SystemError) -> BaseException:
    """The exception that was kept since there were ``before``, instead of C++'s complaint."""
    kept = _kept()
    found = kept[before] if len(kept) > before else error
    del kept[before:]
    return found
