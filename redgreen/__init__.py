"""Mutation testing for GPU synchronization: which of your sync calls are load-bearing?"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .api import Proof, SubjectRaised, UsageError, check, installed

__all__ = ["Proof", "SubjectRaised", "UsageError", "check", "installed", "prove"]


def prove(callable: Callable[..., object], *args: Any, **options: Any) -> Proof:
    """Find out which sync calls of ``callable(*args)`` are load-bearing: `redgreen.api.prove`.

    ``callable`` returns what is compared: tensors, arrays, numbers, strings or containers of these.
    Options: ``reference`` (a callable that returns the right output), ``device``, ``timeout`` in
    seconds, ``budget`` in runs, ``edges`` (a glob of files), ``allocator``, ``progress``. Raises
    SubjectRaised if the callable raises as written, UsageError if it cannot be called so.
    """
    from . import api

    return api.prove(callable, *args, **options)


def __getattr__(name: str) -> Any:
    # torch takes seconds to import; a pytest plugin or --version must not pay for it.
    if name in __all__:
        from . import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
