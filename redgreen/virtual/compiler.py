"""``torch.compile`` compiles nothing here: there is no CUDA to compile for. Its functions run
operator by operator, as PyTorch offers it (the stance "force_eager"), and stay what they are.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from .patches import Patches

_before: list[Any] = []  # what gives the user's own stance back


def install(patches: Patches) -> None:
    """What is or gets compiled runs eagerly, until `restore`."""
    original: Callable[..., Any] = torch.compile

    @wraps(original)
    def compile(*args: Any, **kwargs: Any) -> Any:
        compiled = original(*args, **kwargs)  # imports the compiler, which takes a second
        if not _before:
            _before.append(torch.compiler.set_stance("force_eager"))
        return compiled

    if "torch._dynamo" in sys.modules:  # something may be compiled already
        _before.append(torch.compiler.set_stance("force_eager"))
    patches.set(torch, "compile", compile)


def restore() -> None:
    """Compiled functions are what they were before `install`."""
    while _before:
        _before.pop().__exit__(None, None, None)
