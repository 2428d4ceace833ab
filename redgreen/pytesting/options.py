"""What the user asked for: command line over mark over configuration file over defaults."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

import pytest

from ..backend import ALLOCATORS, DEVICES, canonical, from_environment

T = TypeVar("T")

SESSION = pytest.StashKey[Any]()  # a session.Session, once something needed it

_INI = {
    "redgreen_device": "device of the subjects: virtual or cuda",
    "redgreen_edges": "glob of the files whose edges become RED items (a full path is matched)",
    "redgreen_allocator": "how memory is handed out: native, expandable or stream-ordered",
    "redgreen_timeout": "seconds that one run of a subject may take (60)",
    "redgreen_budget": "runs to spend on one question before it is inconclusive",
}


@dataclass(frozen=True, slots=True)
class Settings:
    """How a subject is proved."""

    device: str = "virtual"
    edges: str | None = None
    allocator: str = "native"
    timeout: float = 60.0
    budget: int | None = None

    def updated(self, values: Mapping[str, Any]) -> Settings:
        """With these values checked and put in; ValueError names the one that is wrong."""
        return replace(self, **{name: CHECKS[name](name, value) for name, value in values.items()})


def add(parser: pytest.Parser) -> None:
    group = parser.getgroup("redgreen", "which sync calls are load-bearing")
    option = group.addoption
    option("--redgreen-device", choices=DEVICES, help=_INI["redgreen_device"])
    option("--redgreen-edges", metavar="GLOB", help=_INI["redgreen_edges"])
    option("--redgreen-json", metavar="PATH",
           help="write the proofs as JSON: one file each into a directory, or all into one file")
    option("--redgreen-refresh", action="store_true",
           help="record again which edges the subjects have")
    option("--redgreen-replay", metavar="TOKEN",
           help="run the one schedule of this token, and nothing else")
    for name, text in _INI.items():
        parser.addini(name, text)


def read(config: pytest.Config) -> Settings:
    """Settings before any mark; UsageError if a value is of no use."""
    values = {name.removeprefix("redgreen_"): config.getini(name) for name in _INI}
    try:
        settings = Settings(allocator=from_environment()[0]).updated(
            {name: value for name, value in values.items() if value})
    except ValueError as error:
        raise pytest.UsageError(f"redgreen_{error}") from None
    return settings


def command_line(config: pytest.Config) -> dict[str, Any]:
    """What the command line says, which no mark overrides."""
    values = {name: config.getoption(f"redgreen_{name}") for name in ("device", "edges")}
    return {name: value for name, value in values.items() if value is not None}


def _one_of(choices: tuple[str, ...]) -> Callable[[str, Any], str]:
    def check(name: str, value: Any) -> str:
        if value not in choices:
            raise ValueError(f"{name}: {value!r} is not one of {', '.join(choices)}")
        return str(value)

    return check


def _allocator(name: str, value: Any) -> str:
    return _one_of(ALLOCATORS)(name, canonical(value) if isinstance(value, str) else value)


def _positive(kind: Callable[[Any], T], what: str) -> Callable[[str, Any], T]:
    def check(name: str, value: Any) -> T:
        try:
            number = kind(value)
            if 0 < number < float("inf"):  # type: ignore[operator]
                return number
        except (TypeError, ValueError):
            pass
        raise ValueError(f"{name}: {value!r} is not a positive {what}")

    return check


def _glob(name: str, value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"{name}: {value!r} is not a glob such as '*/engine/*.py'")
    return value


CHECKS: Mapping[str, Callable[[str, Any], Any]] = {
    "device": _one_of(DEVICES),
    "edges": _glob,
    "allocator": _allocator,
    "timeout": _positive(float, "number of seconds"),
    "budget": _positive(int, "whole number of runs"),
}
