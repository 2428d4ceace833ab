"""Replacing attributes for a while, and every name that was bound to them before."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

_MISSING = object()
_originals: dict[int, object] = {}  # by id: what has ever been replaced
_surveyed: set[str] = set()  # modules that were looked through
_count = 0  # modules at the last look; the same number: nothing new
_bindings: list[tuple[dict[str, Any], str]] = []  # where a replaced name was found


def survey() -> None:
    """Find where modules have bound the names that are replaced.

    Looking at a module or a value writes its reference count, which in a forked child copies the
    page it is on: most of its memory. So what was found is kept, and a template surveys before it
    forks. The number of modules tells that there is nothing new.
    """
    global _count
    if len(sys.modules) == _count or not _originals:
        return
    for title, module in list(sys.modules.items()):
        if title in _surveyed or not isinstance(module, ModuleType):
            continue
        _surveyed.add(title)
        if title.split(".")[0] in ("torch", "redgreen"):
            continue
        names = object.__getattribute__(module, "__dict__")  # lazy modules stay unloaded
        _bindings.extend(
            (names, key) for key, value in list(names.items()) if id(value) in _originals
        )
    _count = len(sys.modules)


class Patches:
    """Replaced attributes, restored in reverse order."""

    def __init__(self) -> None:
        self._saved: list[tuple[Any, str, Any]] = []
        self._rebound: list[tuple[dict[str, Any], str, Any]] = []
        self._replaced: dict[int, tuple[Any, Any]] = {}  # id of the original -> (it, replacement)

    def set(self, owner: Any, name: str, value: Any) -> None:
        """``owner.name = value`` until `undo`."""
        before = owner.__dict__.get(name, _MISSING)
        self._saved.append((owner, name, before))
        if before is not _MISSING and callable(before) and isinstance(owner, ModuleType):
            self._replaced[id(before)] = (before, value)
        setattr(owner, name, value)

    def rebind(self) -> None:
        """Also where modules imported a name earlier: ``from torch.cuda import Stream``."""
        _originals.update(self._replaced)
        survey()
        for names, name in _bindings:
            found = self._replaced.get(id(names.get(name)))
            if found is not None and found[0] is names[name]:
                self._rebound.append((names, name, found[0]))
                names[name] = found[1]

    def undo(self) -> None:
        while self._rebound:
            names, name, before = self._rebound.pop()
            names[name] = before
        while self._saved:
            owner, name, before = self._saved.pop()
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._replaced.clear()
