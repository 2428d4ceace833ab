"""Mutation testing for GPU synchronization: which of your sync calls are load-bearing?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import Proof, SubjectRaised, UsageError, check, installed

__all__ = ["Proof", "SubjectRaised", "UsageError", "check", "installed", "prove"]


def prove(callable: Callable[..., object], *args: Any, **options: Any) -> Proof:
    from . import api

    return api.prove(callable, *args, **options)


def __getattr__(name: str) -> Any:
    # torch takes seconds to import; a pytest plugin or --version must not pay for it.
    if name in __all__:
        from . import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
