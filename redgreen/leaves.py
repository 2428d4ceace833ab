"""Flattens what a subject returned into bytes that can be compared.

Host values are read before device values: reading a device tensor waits for its stream, and a host
tensor that the program returned without a sync must be read as early as the program's caller could.
"""

from __future__ import annotations

import dataclasses
import enum
import re
import struct
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Set
from typing import Any

import numpy as np
import torch

from .run import Leaf

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
    if id(value) in above or len(above) > _DEPTH:
        raise Unreadable(path, "a container that contains itself")
    # The container's own form is a leaf: an empty list is not an empty dict.
    form = f"{type(value).__name__} of {len(children)}"
    yield _Pending(path, lambda: [Leaf(path, form, b"")], False)
    for name, child in children:
        yield from _walk(child, path + name, (*above, id(value)))


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
    if isinstance(value, Set):
        return [(f"{{{text}}}", None) for text in sorted(_stable(item, path) for item in value)]
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return [(f".{f.name}", getattr(value, f.name)) for f in dataclasses.fields(value)]
    if isinstance(value, torch.nn.Module):
        return [(f".{name}", child) for name, child in value.state_dict().items()]
    if isinstance(value, np.ndarray) and value.dtype.hasobject:
        return [(f"[{i}]", child) for i, child in enumerate(value.ravel().tolist())]
    return None


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
    """The repr of ``value`` if it is the same in every process."""
    text = repr(value)
    if _ADDRESS.search(text):
        raise Unreadable(path, f"an instance of {type(value).__name__} ({text[:60]})")
    return text


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
