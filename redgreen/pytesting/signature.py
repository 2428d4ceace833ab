"""Can a test function be called in another process? Its arguments, or the reason why not."""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from .mark import NotASubject


def arguments(function: pytest.Function) -> dict[str, Any]:
    """The values of its parameters, all of them from parametrization."""
    wanted = list(inspect.signature(function.obj).parameters.values())
    names = [p.name for p in wanted
             if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD) and p.default is p.empty]
    callspec = getattr(function, "callspec", None)
    values = dict(callspec.params) if callspec is not None else {}
    fixtures = [name for name in names if name not in values or not _is_plain(function, name)]
    fixtures += [name for mark in function.iter_markers("usefixtures") for name in mark.args]
    if fixtures:
        raise NotASubject(
            f"it uses the fixture {', '.join(fixtures)}; a subject runs in a process of its own, "
            + ("which has a virtual GPU already" if fixtures == ["virtual_gpu"]
               else "without fixtures: make what it needs inside the function")
        )
    return {p.name: values[p.name] for p in wanted if p.name in values}


def _is_plain(function: pytest.Function, name: str) -> bool:
    """A parameter itself, rather than a fixture that is given the value as ``request.param``."""
    info = getattr(function, "_fixtureinfo", None)
    definitions = getattr(info, "name2fixturedefs", {}).get(name)
    if not definitions:
        return True
    source = definitions[-1].func  # pytest makes a pseudo fixture of each plain parameter
    return str(source.__module__).startswith("_pytest.")


def pickled(values: Mapping[str, Any], reference: Callable[..., object] | None) -> bytes:
    """For a process that imports the same modules; functions and classes go by their names."""
    for name, value in (*values.items(), ("reference", reference)):
        try:
            pickle.loads(pickle.dumps(value))
        except Exception as error:
            remedy = ("define it at the top level of a module" if callable(value)
                      else "give it a plain value")
            raise NotASubject(
                f"{name}: {_brief(value)} cannot be sent to another process ({_brief(error)});"
                f" {remedy}"
            ) from None
    return pickle.dumps((dict(values), reference))


def _brief(value: object) -> str:
    text = " ".join((str(value) if isinstance(value, Exception) else repr(value)).split())
    return text if len(text) <= 120 else f"{text[:117]}..."
