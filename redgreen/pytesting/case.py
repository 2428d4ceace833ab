"""A test function with its arguments, so that another process can call it.

Subjects run in a process of their own, never in pytest's: there the hash seed is fixed, so that a
token means the same everywhere, and no other test has left streams, threads or a backward pass.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import inspect
import json
import os
import pickle
import site
import sys
import sysconfig
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path
from types import ModuleType
from typing import Any

_PACKAGE = str(Path(__file__).parent.parent) + os.sep


@dataclass(frozen=True, slots=True)
class Case:
    """A subject (redgreen.subject.Subject) that is a test function, or its reference."""

    file: str
    module: str  # the name that pytest imported the file by; pickles refer to it
    function: str  # "TestEngine.test_decode"
    suffix: str  # "[ids of parameters]" or ""
    name: str  # "tests/test_engine.py:TestEngine.test_decode[a]"
    call: bytes  # pickled: (arguments by name, reference or None)
    reference_name: str = ""
    as_reference: bool = False
    sources: str = ""  # a run writes the digests of the project's files here
    prints: bool = False
    own_imports: bool = True

    @property
    def program(self) -> str:
        return f"{Path(self.file).name}:{self.function}{self.suffix}"

    def enter(self) -> None:
        """Nothing: the process was made for this."""

    def load(self) -> Callable[[], object]:
        module = _import(self.module, Path(self.file))
        function = _bound(module, self.function)
        arguments, reference = pickle.loads(self.call)
        bound = inspect.signature(function).bind(**arguments)
        chosen = reference if self.as_reference else function

        def call() -> object:
            try:
                value = chosen(*bound.args, **bound.kwargs)
                return _finished(value) if inspect.isawaitable(value) else value
            finally:
                if self.sources:
                    Path(self.sources).write_text(json.dumps(dict(project_digests())))

        return call

    def place(self, call: Callable[[], object]) -> tuple[str, int, str]:
        function: Any = reduce(getattr, self.function.split("."), sys.modules[self.module])
        code = inspect.unwrap(function).__code__
        return code.co_filename, code.co_firstlineno, code.co_name

    @property
    def reference(self) -> Case | None:
        """Its reference as a subject, if it has one."""
        if not self.reference_name:
            return None
        return replace(self, name=self.reference_name, as_reference=True)


def _finished(value: Any) -> object:
    """What a coroutine returns, run in an event loop of its own."""
    import asyncio

    async def wait() -> object:
        return await value

    return asyncio.run(wait())


def _bound(module: ModuleType, path: str) -> Callable[..., object]:
    """The function, or the method of a new instance of its class."""
    *classes, name = path.split(".")
    owner: Any = reduce(getattr, classes, module)
    function: Callable[..., object] = getattr(owner() if classes else owner, name)
    return function


def _import(name: str, path: Path) -> ModuleType:
    """Import the file under the name that pytest gave it, whatever that name is."""
    if "." in name:
        with contextlib.suppress(ImportError):  # with --import-mode=importlib there may be none
            importlib.import_module(name.rpartition(".")[0])
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None and spec.loader is not None, path
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


def project_digests() -> Iterator[tuple[str, str]]:
    """The imported files that are neither installed nor of the standard library nor redgreen's."""
    paths = sysconfig.get_paths()
    roots = [paths[name] for name in ("stdlib", "platstdlib", "purelib", "platlib")]
    outside = tuple(root + os.sep for root in (*roots, *site.getsitepackages(),
                                               site.getusersitepackages()))
    for module in list(sys.modules.values()):
        file = getattr(module, "__file__", None)
        if isinstance(file, str) and not file.startswith((*outside, _PACKAGE)):
            with contextlib.suppress(OSError):
                yield file, digest(file)


def digest(file: str) -> str:
    return hashlib.sha256(Path(file).read_bytes()).hexdigest()
