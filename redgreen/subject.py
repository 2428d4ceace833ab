"""What is proved: a function in a file or module, a script, or a callable of this process.

A subject is loaded inside each run: its module-level streams, events and buffers belong to the run.
"""

from __future__ import annotations

import importlib
import importlib.util
import inspect
import runpy
import sys
from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any, Protocol


class UsageError(Exception):
    """The user asked for something that cannot be done: one line, exit status 2."""


class Subject(Protocol):
    """Something to run, by name."""

    @property
    def name(self) -> str: ...

    @property
    def prints(self) -> bool:
        """Its output is what it writes to standard output."""
        ...

    @property
    def program(self) -> str:
        """What a token is bound to: the name without directories."""
        ...

    @property
    def own_imports(self) -> bool:
        """Its modules are imported by the run, not by the process that asks for the proof."""
        ...

    def enter(self) -> None:
        """Set ``sys.path`` and ``sys.argv`` as Python would for this program."""
        ...

    def load(self) -> Callable[[], object]:
        """Import what is needed and return the callable; UsageError if there is none."""
        ...

    def place(self, call: Callable[[], object]) -> tuple[str, int, str]:
        """File, line and function that stand for the whole of it; ``call`` is what `load` gave."""
        ...


def parse(text: str) -> Subject:
    """``file.py:function``, ``package.module:function`` or ``script.py``."""
    where, colon, function = text.rpartition(":")
    if not colon:
        where, function = text, ""
    if colon and not function:
        raise UsageError(f"{text}: name a function after the colon, or leave the colon out")
    is_file = where.endswith(".py") or "/" in where
    if is_file:
        path = Path(where)
        if path.is_dir():
            raise UsageError(f"{where}: is a directory, not a Python file")
        if not path.is_file():
            raise UsageError(f"{where}: no such file")
        if not colon:
            return Script(path)
        return Function(text, path.resolve(), "", function)
    if not colon or not all(name.isidentifier() for name in where.split(".")):
        raise UsageError(
            f"{text}: not a subject; use file.py:function, package.module:function or script.py"
        )
    return Function(text, None, where, function)


@dataclass(frozen=True, slots=True)
class Function:
    """A function of a file (``path``) or of an importable module (``module``)."""

    name: str
    path: Path | None
    module: str
    function: str
    prints: bool = False
    own_imports: bool = True

    @property
    def program(self) -> str:
        return f"{self.path.name if self.path else self.module}:{self.function}"

    def enter(self) -> None:
        # A module is found from the working directory, as with python -m.
        top = _package_root(self.path)[0] if self.path else Path.cwd()
        _set_path(top)
        sys.argv = [str(self.path) if self.path else self.module]

    def load(self) -> Callable[[], object]:
        module = _import_file(self.path) if self.path else self._import_module()
        try:
            function = reduce(getattr, self.function.split("."), module)
        except AttributeError:
            near = _near(self.function, module)
            raise UsageError(f"{self.name}: no such function{near}") from None
        return check_callable(function, self.name)

    def place(self, call: Callable[[], object]) -> tuple[str, int, str]:
        return _place(call)

    def _import_module(self) -> ModuleType:
        try:
            return importlib.import_module(self.module)
        except ModuleNotFoundError as error:
            # A missing import *inside* the module is the subject's own failure.
            if error.name and f"{self.module}.".startswith(f"{error.name}."):
                raise UsageError(f"{self.name}: no module named {error.name}") from None
            raise


@dataclass(frozen=True, slots=True)
class Script:
    """A file run as ``__main__``; its standard output is its output."""

    path: Path
    prints: bool = True
    own_imports: bool = True

    @property
    def name(self) -> str:
        return str(self.path)

    @property
    def program(self) -> str:
        return self.path.name

    def enter(self) -> None:
        _set_path(self.path.resolve().parent)
        sys.argv = [str(self.path)]

    def load(self) -> Callable[[], object]:
        return lambda: runpy.run_path(str(self.path), run_name="__main__") and None

    def place(self, call: Callable[[], object]) -> tuple[str, int, str]:
        return str(self.path), 1, "<module>"


@dataclass(frozen=True, slots=True)
class Call:
    """A callable that already lives in this process, with its arguments."""

    function: Callable[..., object]
    arguments: tuple[Any, ...] = ()
    prints: bool = False
    own_imports: bool = False

    @property
    def name(self) -> str:
        code = getattr(inspect.unwrap(self.function), "__code__", None)
        title = getattr(self.function, "__qualname__", type(self.function).__name__)
        return f"{Path(code.co_filename).name}:{title}" if code else title

    @property
    def program(self) -> str:
        return self.name

    def enter(self) -> None:
        """Nothing: the process is the user's."""

    def load(self) -> Callable[[], object]:
        function = check_callable(self.function, self.name, self.arguments)
        return lambda: function(*self.arguments)

    def place(self, call: Callable[[], object]) -> tuple[str, int, str]:
        return _place(self.function)


def check_callable(
    function: object, name: str, arguments: tuple[Any, ...] = ()
) -> Callable[..., object]:
    """``function`` if it can be called with ``arguments``, else UsageError."""
    if not callable(function):
        raise UsageError(f"{name}: of type {type(function).__name__}, not a function")
    if inspect.isgeneratorfunction(function) or inspect.iscoroutinefunction(function):
        kind = "generator" if inspect.isgeneratorfunction(function) else "coroutine"
        raise UsageError(f"{name}: a {kind} function; wrap it in a function that runs it")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # builtins without one
        return function
    try:
        signature.bind(*arguments)
    except TypeError as error:
        given = f"called with {len(arguments)} arguments" if arguments else "called without any"
        raise UsageError(f"{name}: takes {signature}, but is {given} ({error})") from None
    return function


def _place(function: Callable[..., object]) -> tuple[str, int, str]:
    """Where a function is defined; classes, partials and builtins have a name at best."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    if code is None:
        return "<subject>", 1, getattr(function, "__name__", type(function).__name__)
    return code.co_filename, code.co_firstlineno, code.co_name


def _set_path(first: Path) -> None:
    """Put ``first`` where Python puts the directory of the program."""
    if sys.flags.safe_path or not sys.path:
        sys.path.insert(0, str(first))
    else:
        sys.path[0] = str(first)


def _package_root(path: Path) -> tuple[Path, str]:
    """The directory that makes ``path`` importable and its dotted name there."""
    names = [] if path.name == "__init__.py" else [path.stem]
    top = path.parent
    while (top / "__init__.py").is_file():
        names.insert(0, top.name)
        top = top.parent
    return top, ".".join(names)


def _import_file(path: Path) -> ModuleType:
    """Import a file under the name that other modules would import it by."""
    name = _package_root(path)[1]
    if "." in name:
        importlib.import_module(name.rpartition(".")[0])
    if name in sys.modules and getattr(sys.modules[name], "__file__", None) != str(path):
        name = f"redgreen_subject_{path.stem}"  # the file is called like a module in use
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def _near(function: str, module: ModuleType) -> str:
    """The functions that the user may have meant, short enough for one line."""
    names = [n for n, f in vars(module).items() if inspect.isfunction(f) and n[0] != "_"
             and f.__module__ == module.__name__]
    close = get_close_matches(function, names, 1)
    if close:
        return f"; did you mean {close[0]}?"
    return f"; it has {', '.join(sorted(names)[:4])}" if names else ""
