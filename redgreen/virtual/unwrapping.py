"""From virtual tensors to the real ones behind them, and the guard under which those are used."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch

from .gpu import BACKEND
from .tensor import DeviceTensor, VirtualTensor

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


class Arguments:
    """The arguments of a call, looked at once: the tensors, the real ones behind them, the key."""

    __slots__ = ("args", "found", "key", "kwargs", "named", "on_device", "raw")

    def __init__(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.args, self.kwargs = args, kwargs
        self.found: list[torch.Tensor] = []  # all tensors, in order
        self.on_device = 0  # how many of them are device tensors
        raw, key = self._look(args)
        self.raw = tuple(raw)
        self.named: dict[str, Any] = {}
        self.key: Any = tuple(key)  # equal for calls that return the same metadata
        if kwargs:
            named, more = self._look(kwargs.values())
            self.named = dict(zip(kwargs, named, strict=True))
            self.key = (self.key, *kwargs, *more)

    def _look(self, values: Iterable[Any]) -> tuple[list[Any], list[Any]]:
        raw: list[Any] = []
        key: list[Any] = []
        for value in values:
            kind = type(value)
            if kind is DeviceTensor:
                self.found.append(value)
                self.on_device += 1
                raw.append(value.raw)
                key.append(value.meta)
            elif kind is list or kind is tuple:
                inner, parts = self._look(value)
                raw.append(kind(inner))
                key.append(tuple(parts))
            elif isinstance(value, torch.Tensor):
                self.found.append(value)
                self.on_device += isinstance(value, DeviceTensor)
                raw.append(unwrap(value))
                key.append((tuple(value.shape), value.stride(), value.dtype, 0))
            else:
                raw.append(unwrap(value))
                key.append((kind, value))  # 1, 1.0 and True are equal but promote differently
        return raw, key


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
