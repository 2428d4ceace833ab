"""How C code asks a tracked array for its bytes, on Pythons that have no ``__buffer__``.

Python calls ``__buffer__`` from 3.12 on (PEP 688). Before that nothing in Python can override the
buffer protocol, so the slot of the type is replaced by a callback into Python.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from .gpu import gpu

_GET_BUFFER = 1  # Py_bf_getbuffer
_AS_BUFFER = 20  # words in front of tp_as_buffer in the PyTypeObject of CPython 3.11
_kept: list[Any] = []  # what C points to


def replace_slot(cls: type, asked: Callable[[Any, int], None]) -> None:
    """``asked(array, flags)`` is called before C code gets the bytes of an array of ``cls``."""
    signature = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_void_p, ctypes.c_int)
    get_slot = ctypes.pythonapi.PyType_GetSlot
    get_slot.restype, get_slot.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_int]
    address = get_slot(cls, _GET_BUFFER)
    procedures = _word(id(cls) + _AS_BUFFER * ctypes.sizeof(ctypes.c_void_p)).value
    if procedures is None or _word(procedures).value != address:
        raise RuntimeError("types of this build of Python are not laid out as in CPython 3.11")
    original = signature(address)

    def get_buffer(array: Any, view: int, flags: int) -> int:
        # No exception can leave a callback of ctypes. One of ours (the run has taken too many
        # steps) is raised by the next step. One of NumPy's (not contiguous, read-only) makes the
        # request fail, and most C code then has words of its own for that.
        try:
            asked(array, flags)
        except BaseException:
            gpu().machine.step_limit = 0
        try:
            return int(original(array, view, flags))
        except Exception:
            return -1

    callback = signature(get_buffer)
    _kept.append(callback)
    _word(procedures).value = ctypes.cast(callback, ctypes.c_void_p).value


def _word(address: int) -> ctypes.c_void_p:
    return ctypes.c_void_p.from_address(address)
