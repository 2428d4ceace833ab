"""Numbers for futures and threads, in place of their addresses.

``concurrent.futures`` keeps both in sets and sorts futures by ``id``: in which order a pool's
threads are joined and finished futures are handed out depends on where they lie in memory. While
control is installed they hash, and sort, by a number in order of creation instead.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from functools import wraps
from typing import Any

_NUMBER = "_redgreen_number"


def numbered_init(original: Callable[..., None]) -> Callable[..., None]:
    """For ``__init__``: give each new object the next number."""
    numbers = itertools.count(1)

    @wraps(original)
    def init(self: Any, *args: Any, **kwargs: Any) -> None:
        self.__dict__[_NUMBER] = next(numbers)
        original(self, *args, **kwargs)

    return init


def number(thing: Any) -> int:
    """For ``__hash__`` and in place of ``id``: older objects keep their address."""
    known = getattr(thing, "__dict__", {}).get(_NUMBER)
    return object.__hash__(thing) if known is None else int(known)
