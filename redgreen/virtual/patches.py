"""Replacing attributes for a while, and every name that was bound to them before."""

from __future__ import annotations

import sys
from types import ModuleType
from typing import Any

_MISSING = object()


class Patches:
    """Replaced attributes, restored in reverse order."""

    def __init__(self) -> None:
        self._saved: list[tuple[Any, str, Any]] = []
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
        for title, module in list(sys.modules.items()):
            names = getattr(module, "__dict__", None)
            if names is None or title.split(".")[0] in ("torch", "redgreen"):
                continue
            for name, value in list(names.items()):
                found = self._replaced.get(id(value))
                if found is not None and found[0] is value:
                    self._saved.append((module, name, value))
                    setattr(module, name, found[1])

    def undo(self) -> None:
        while self._saved:
            owner, name, before = self._saved.pop()
            if before is _MISSING:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._replaced.clear()
