"""Mutation testing for GPU synchronization: which of your sync calls are load-bearing?"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import Proof, SubjectRaised, UsageError, installed

__all__ = ["Proof", "SubjectRaised", "UsageError", "installed", "prove"]


def prove(callable: Callable[..., object], *args: Any, **options: Any) -> Proof:
    from . import api

    return api.prove(callable, *args, **options)


def __getattr__(name: str) -> Any:
    # torch takes seconds to import; a pytest plugin or --version must not pay for it.
    if name in __all__:
        from . import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _Package(ModuleType):
    """Keeps the function ``prove`` when the module of that name is imported."""

    def __setattr__(self, name: str, value: Any) -> None:
        if not (name == "prove" and isinstance(value, ModuleType)):
            super().__setattr__(name, value)


sys.modules[__name__].__class__ = _Package
