"""What the ``redgreen`` marks of a test function say, all of them together."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from .options import CHECKS

REGISTERED = (
    "redgreen(reference=None, redundant={}, edges=None, timeout=60, budget=None, allocator=None"
    "): the test function is a subject: it runs GPU code and returns its output. It yields one"
    " GREEN item and one RED item for each sync call. `redundant` maps edge ids to reasons",
    "green: the item says whether a subject gives the same bytes on every legal schedule",
    "red: the item says whether one sync call of a subject is load-bearing",
)
_OPTIONS = tuple(name for name in CHECKS if name != "device")
_KNOWN = ("reference", "redundant", *_OPTIONS)


class NotASubject(Exception):
    """The marked function cannot be one; the message says why, in one line."""


@dataclass(frozen=True, slots=True)
class Mark:
    """The merged marks; the closest one wins, redundant edges add up."""

    reference: Callable[..., object] | None = None
    redundant: Mapping[str, str] = field(default_factory=dict)  # edge id -> reason
    settings: Mapping[str, Any] = field(default_factory=dict)


def merged(marks: Iterable[pytest.Mark]) -> Mark:
    """``marks`` closest first, as `iter_markers` gives them; NotASubject if one is misused."""
    values: dict[str, Any] = {}
    redundant: dict[str, str] = {}
    for mark in marks:
        if mark.args:
            raise NotASubject(f"redgreen takes keywords only, not {mark.args[0]!r}")
        for name, value in mark.kwargs.items():
            if name not in _KNOWN:
                raise NotASubject(f"redgreen has no {name!r}; it has {', '.join(_KNOWN)}")
            if name == "redundant":
                redundant = {**_reasons(value), **redundant}
            elif value is not None:
                values.setdefault(name, value)
    reference = values.pop("reference", None)
    if reference is not None and not callable(reference):
        raise NotASubject(f"reference: {reference!r} is not a function")
    return Mark(reference, redundant, {name: _checked(name, v) for name, v in values.items()})


def _checked(name: str, value: Any) -> Any:
    try:
        return CHECKS[name](name, value)
    except ValueError as error:
        raise NotASubject(str(error)) from None


def _reasons(value: Any) -> dict[str, str]:
    if not isinstance(value, Mapping):
        raise NotASubject(
            "redundant: give a dictionary such as {'engine.py:31 wait_event': 'the reason'}"
        )
    for edge, reason in value.items():
        if not isinstance(edge, str) or not isinstance(reason, str) or not reason.strip():
            raise NotASubject(f"redundant: {edge!r} needs a reason, which is text")
    return dict(value)
