"""Device tensors and pinned host tensors.

A `DeviceTensor` is a wrapper subclass: to C++ it is a tensor of the PrivateUse1 device without
data, to Python its device is ``cuda:0``; its bytes are a CPU tensor over the virtual GPU's memory
that only executed work touches. (A subclass that claims device type ``cuda`` to C++ fails on a CPU
build in indexing, ``.item()`` and autograd.)

A `PinnedTensor` is an ordinary CPU tensor with its data in pinned memory, subclassed so that every
host access to it is seen. Both send their operators to `redgreen.virtual.dispatch`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..trace import Access
from .extents import extent
from .gpu import BACKEND
from .memory import Block

Meta = tuple[tuple[int, ...], tuple[int, ...], torch.dtype]
_make_wrapper = torch.Tensor._make_wrapper_subclass
_make_subclass = torch.Tensor._make_subclass
CUDA = torch.device("cuda", 0)
_NO_GRAD_ALIAS = torch._C._disabled_torch_function_impl

_dispatch: Callable[..., Any]
_privateuse1: torch.device


def set_dispatch(function: Callable[..., Any]) -> None:
    global _dispatch, _privateuse1
    _dispatch = function
    _privateuse1 = torch.device(BACKEND, 0)


class VirtualTensor(torch.Tensor):
    """What both kinds share: real bytes and the block they live in."""

    __torch_function__ = _NO_GRAD_ALIAS  # type: ignore[assignment]
    raw: torch.Tensor  # plain CPU tensor over the block's bytes
    block: Block
    meta: Meta

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Sequence[type], args: Any = (), kwargs: Any = None
    ) -> Any:
        return _dispatch(func, args, kwargs or {})

    def access(self, reads: bool, writes: bool) -> tuple[Access, ...]:
        """The access that a step makes that uses the whole tensor; empty for no bytes."""
        cache: dict[tuple[bool, bool], tuple[Access, ...]] | None = self.__dict__.get("_accesses")
        if cache is None:
            cache = {}
            self._accesses = cache
        found = cache.get((reads, writes))
        if found is None:
            shape, strides, dtype = self.meta
            size, block = dtype.itemsize, self.block
            start = block.start + int(self.raw.storage_offset()) * size
            where = extent(start, shape, strides, size)
            found = ()
            if where is not None:
                found = (Access(block.memory.id, block.allocation, where, reads, writes),)
            cache[reads, writes] = found
        return found


class DeviceTensor(VirtualTensor):
    """A tensor of the virtual GPU."""

    def __new__(cls, data: torch.Tensor, requires_grad: bool = True) -> Any:
        """``type(parameter)(data, requires_grad=...)``: parameters here are of this class."""
        return torch.nn.Parameter(data, requires_grad)


class PinnedTensor(VirtualTensor):
    """A host tensor in pinned memory."""


def device_tensor(real: torch.Tensor, block: Block, meta: Meta | None = None) -> DeviceTensor:
    """Wraps bytes of a device block."""
    if meta is None:
        meta = (tuple(real.shape), real.stride(), real.dtype)
    tensor: DeviceTensor = _make_wrapper(
        DeviceTensor, meta[0], meta[1], real.storage_offset(), None, meta[2], torch.strided,
        _privateuse1,
    )  # fmt: skip
    tensor.raw = real
    tensor.block = block
    tensor.meta = meta
    return tensor


def pinned_tensor(real: torch.Tensor, block: Block) -> PinnedTensor:
    """Wraps bytes of a pinned block."""
    tensor: PinnedTensor = _make_subclass(PinnedTensor, real)
    tensor.raw = real
    tensor.block = block
    tensor.meta = (tuple(real.shape), real.stride(), real.dtype)
    return tensor
