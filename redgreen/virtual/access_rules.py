"""Which bytes an operator touches, where its schema does not say it exactly.

The schema says what is written; everything else is read, whole tensors. That is too much where an
operator picks rows by an index tensor (a paged KV cache: two streams in disjoint pages do not
conflict), so those are refined when they execute and the index values are known.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..trace import Access
from .gpu import BACKEND
from .tensor import DeviceTensor

aten = torch.ops.aten
# (args, kwargs, tensors found, tensors written) at enqueue -> accesses at execution, when the
# index values are known. What is returned must hold raw tensors only.
Rule = Callable[[Any, Any, Any, Any], Callable[[], tuple[Access, ...]] | None]

# Operators whose schema keeps a write to itself: positions of the arguments.
UNDECLARED_WRITES: dict[Any, tuple[int, ...]] = {
    aten.native_batch_norm.default: (3, 4),
}

_OVERWRITING = {
    "aten::copy_", "aten::fill_", "aten::zero_", "aten::uniform_", "aten::normal_",
    "aten::random_", "aten::bernoulli_", "aten::exponential_", "aten::set_", "aten::log_normal_",
    "aten::cauchy_", "aten::geometric_", "aten::_foreach_zero_", "aten::_foreach_copy_",
}  # fmt: skip


def overwrites(func: Any) -> bool:
    """True where the written tensors are not read first."""
    name = func._schema.name
    return name in _OVERWRITING or any(a.is_out for a in func._schema.arguments)


def find(func: Any) -> Rule | None:
    """The refinement of this operator, if it has one."""
    return None


_INDEXING = {aten.index.Tensor, aten.index_put.default, aten.index_put_.default}


def move_indices(func: Any, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Host index tensors go to the device, as CUDA's indexing does it: a blocking copy."""
    if func not in _INDEXING or not any(
        isinstance(i, torch.Tensor) and not isinstance(i, DeviceTensor) for i in args[1]
    ):
        return args
    place = args[0].raw.device if not isinstance(args[0], DeviceTensor) else _backend()
    moved = [
        aten._to_copy.default(i, device=place) if isinstance(i, torch.Tensor) else i
        for i in args[1]
    ]
    return (args[0], moved, *args[2:])


def _backend() -> torch.device:
    return torch.device(BACKEND, 0)


def shape_from_data(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Does the output's shape depend on values? Indexing only where an index is a mask."""
    if func in _INDEXING:
        return any(
            isinstance(i, torch.Tensor) and i.dtype in (torch.bool, torch.uint8) for i in args[1]
        )
    return kwargs.get("output_size") is None  # repeat_interleave may be told
