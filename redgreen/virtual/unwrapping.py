"""From virtual tensors to the real ones behind them, and the guard under which those are used."""

from __future__ import annotations

from typing import Any

import torch

from .gpu import BACKEND
from .tensor import VirtualTensor

CPU = torch.device("cpu")


def unwrap(value: Any) -> Any:
    """The real CPU tensors behind virtual ones, in nested lists, tuples and dicts."""
    if isinstance(value, VirtualTensor):
        return value.raw
    if isinstance(value, tuple):
        return tuple([unwrap(v) for v in value])
    if isinstance(value, list):
        return [unwrap(v) for v in value]
    if isinstance(value, dict):
        return {k: unwrap(v) for k, v in value.items()}
    if isinstance(value, torch.device) and value.type in (BACKEND, "cuda"):
        return CPU
    return value


def tensors(values: Any, found: list[torch.Tensor]) -> list[torch.Tensor]:
    """All tensors among arguments, in order."""
    for value in values:
        if isinstance(value, torch.Tensor):
            found.append(value)
        elif isinstance(value, (list, tuple)):
            tensors(value, found)
    return found


class internals:
    """Runs redgreen's own tensor code: no autograd, no modes of the program, no autocast.

    Everything real is done in inference mode: a real tensor that was made while the program was in
    inference mode may then still be written after it left it.
    """

    __slots__ = ("_dispatch", "_inference")

    def __enter__(self) -> None:
        self._dispatch = torch._C._DisableTorchDispatch()
        self._inference = torch._C._InferenceMode(True)
        self._inference.__enter__()

    def __exit__(self, *_: object) -> None:
        self._inference.__exit__(None, None, None)
        del self._dispatch
