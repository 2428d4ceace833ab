"""Flattens what a subject returned into bytes that can be compared.

Host values are read before device values: reading a device tensor waits for its stream, and a host
tensor that the program returned without a sync must be read as early as the program's caller could.
"""

from __future__ import annotations

import dataclasses
import datetime
import enum
import io
import re
import struct
from collections import deque
from collections.abc import Callable, ItemsView, Iterator, KeysView, Mapping, Set, ValuesView
from decimal import Decimal
from fractions import Fraction
from pathlib import PurePath
from types import (
    BuiltinFunctionType,
    CoroutineType,
    FunctionType,
    GeneratorType,
    MethodType,
    ModuleType,
)
from typing import Any
from uuid import UUID

import numpy as np
import torch

from .run import Leaf

# Whose repr is all of them. Any other repr may cut or round: a tensor's does both.
_VALUES = (
    bool | int | float | complex | str | bytes | None | enum.Enum | range | np.generic
    | Fraction | Decimal | datetime.date | datetime.time | datetime.timedelta | UUID | PurePath
    | torch.dtype | torch.device | torch.layout | torch.memory_format
)  # fmt: skip
# Nothing to look into: bytes that are read whole, and code.
_WHOLE: tuple[type, ...] = (
    np.ndarray, bytearray, memoryview, type, ModuleType, FunctionType, BuiltinFunctionType,
    MethodType, GeneratorType, CoroutineType, io.IOBase,
)  # fmt: skip
_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
_DEPTH = 200  # containers inside containers; Python's own recursion limit would be a worse message


class Unreadable(TypeError):
    """The subject returned something that has no bytes to compare."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(
            f"the subject's output{' at ' + path if path else ''} is {what}, which has no bytes to"
            " compare; return tensors, arrays, numbers, strings or containers of these"
        )


@dataclasses.dataclass(slots=True)
class _Pending:
    path: str
    read: Callable[[], list[Leaf]]
    device: bool


def flatten(value: object) -> tuple[Leaf, ...]:
    """All leaves of ``value`` in a stable order; device tensors through ``.cpu()``."""
    pending = list(_walk(value, "", ()))
    leaves: dict[int, list[Leaf]] = {}
    for device in (False, True):
        for index, item in enumerate(pending):
            if item.device is device:
                leaves[index] = item.read()
    return tuple(leaf for index in range(len(pending)) for leaf in leaves[index])


def _walk(value: object, path: str, above: tuple[int, ...]) -> Iterator[_Pending]:
    if isinstance(value, torch.Tensor):
        tensor = value
        device = tensor.device.type not in ("cpu", "meta")
        yield _Pending(path, lambda: _tensor(tensor, path), device)
        return
    children = _children(value, path)
    if children is None:
        leaf = _scalar(value, path)
        yield _Pending(path, lambda: [leaf], False)
        return
    if id(value) in above:
        raise Unreadable(path, "a container that contains itself")
    if len(above) > _DEPTH:
        raise Unreadable(_shortened(path), f"in more than {_DEPTH} containers inside each other")
    # The container's own form is a leaf: an empty list is not an empty dict.
    form = f"{type(value).__name__} of {len(children)}"
    yield _Pending(path, lambda: [Leaf(path, form, b"")], False)
    for name, child in children:
        yield from _walk(child, path + name, (*above, id(value)))


def _shortened(path: str) -> str:
    return path if len(path) <= 60 else f"{path[:40]}...{path[-15:]}"


def _children(value: object, path: str) -> list[tuple[str, Any]] | None:
    """Names and values inside a container, None for anything else."""
    if isinstance(value, Mapping):
        # Equal mappings may have been filled in any order.
        items = sorted(((_stable(k, path), v) for k, v in value.items()), key=lambda kv: kv[0])
        return [(f"[{key}]", child) for key, child in items]
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return [(f".{name}", child) for name, child in zip(value._fields, value, strict=True)]
    if isinstance(value, list | tuple | deque):
        return [(f"[{i}]", child) for i, child in enumerate(value)]
    if isinstance(value, Set) and not isinstance(value, KeysView | ItemsView):
        return [(f"{{{text}}}", None) for text in sorted(_stable(item, path) for item in value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{f.name}", getattr(value, f.name)) for f in dataclasses.fields(value)]
    if isinstance(value, torch.nn.Module):
        state = {**value.state_dict(), **dict(value.named_buffers())}  # also those not persistent
        return [(f".{name}", child) for name, child in state.items()]
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return [(f"[{i}]", child) for i, child in enumerate(value.ravel().tolist())]
    if isinstance(value, KeysView | ValuesView | ItemsView):
        return [(f"[{i}]", child) for i, child in enumerate(value)]
    return _attributes(value)


def _attributes(value: object) -> list[tuple[str, Any]] | None:
    """What an object of the program's own holds; its repr may cut and round that."""
    if isinstance(value, (_VALUES, _WHOLE)):
        return None
    found: list[tuple[str, Any]] = []
    if isinstance(value, BaseException):
        found.append((".args", value.args))
    for base in type(value).__mro__:
        slots = base.__dict__.get("__slots__", ())
        names = (slots,) if isinstance(slots, str) else tuple(slots)
        found += [(f".{n}", getattr(value, n)) for n in names
                  if not n.startswith("__") and hasattr(value, n)]  # fmt: skip
    found += [(f".{name}", child) for name, child in getattr(value, "__dict__", {}).items()]
    return found or None


def _scalar(value: object, path: str) -> Leaf:
    if isinstance(value, np.ndarray | np.generic):
        # tobytes is a method of the array, so that a tracking subclass sees the read.
        return Leaf(path, f"array {value.dtype.str} {value.shape}", value.tobytes())
    form = type(value).__name__
    if value is None:
        return Leaf(path, form, b"")  # no bytes: a subject that returns nothing shows nothing
    if isinstance(value, enum.Enum):
        return Leaf(path, form, value.name.encode())
    if isinstance(value, float):
        return Leaf(path, form, struct.pack("<d", value))
    if isinstance(value, complex):
        return Leaf(path, form, struct.pack("<dd", value.real, value.imag))
    if isinstance(value, str):
        return Leaf(path, form, value.encode("utf-8", "surrogatepass"))
    if isinstance(value, bytes | bytearray | memoryview):
        return Leaf(path, form, bytes(value))
    return Leaf(path, form, _stable(value, path).encode("utf-8", "backslashreplace"))


def _stable(value: object, path: str) -> str:
    """The repr of a value that has all of it in there, the same in every process."""
    pure = isinstance(value, _VALUES) or (
        isinstance(value, tuple | frozenset) and all(_stable(item, path) for item in value)
    )
    text = repr(value)[:60]
    if not pure or _ADDRESS.search(text):
        raise Unreadable(path, f"an instance of {type(value).__name__} ({text})")
    return repr(sorted(value, key=repr) if isinstance(value, frozenset) else value)


def _tensor(tensor: torch.Tensor, path: str) -> list[Leaf]:
    if tensor.is_nested or tensor.is_quantized:
        raise Unreadable(path, f"a {'nested' if tensor.is_nested else 'quantized'} tensor")
    form = f"tensor {str(tensor.dtype).removeprefix('torch.')} {tuple(tensor.shape)}"
    tensor = tensor.detach()
    if tensor.device.type == "meta":
        return [Leaf(path, f"meta {form}", b"")]
    if tensor.layout is not torch.strided:
        dense = tensor.cpu().to_sparse().coalesce()
        parts = [("indices", dense.indices()), ("values", dense.values())]
        return [Leaf(path, f"sparse {form}", b"")] + [
            leaf for name, part in parts for leaf in _tensor(part, f"{path}.{name}")
        ]
    host = tensor.cpu() if tensor.device.type != "cpu" else tensor
    # One copy through the dispatcher: a host read of exactly these bytes, seen by the backend.
    copy = torch.empty(host.shape, dtype=host.dtype, device="cpu").copy_(host)
    return [Leaf(path, form, copy.reshape(-1).view(torch.uint8).numpy().tobytes())]
