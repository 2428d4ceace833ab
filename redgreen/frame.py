"""A frame that stands for the caller of the subject.

What happens outside of the subject's own frames, but on its behalf, needs a place in the program:
objects that die when it returns, and the reading of its output. Steps are named after the innermost
frame that is not ours, which would otherwise be the console script or the test runner, and a token
made by one would not be known to the other.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

T = TypeVar("T")

_MARK = "redgreen_call"


def _calls(redgreen_call: Callable[[], Any]) -> Any:
    return redgreen_call()


def under(call: Callable[[], T], file: str, line: int, function: str) -> T:
    """``call()`` with a frame above it that claims to be ``function`` at ``file``:``line``."""
    code = _calls.__code__.replace(
        co_filename=file, co_firstlineno=line - 1, co_name=function, co_qualname=function
    )
    result: T = FunctionType(code, {}, function)(call)
    return result


def is_stand_in(variables: tuple[str, ...]) -> bool:
    """Whether a code object with these variables is the frame that `under` made."""
    return _MARK in variables
