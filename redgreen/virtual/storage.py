"""Storages of device tensors: identity, size, and the block that ``resize_`` frees or brings back.

FSDP and offloading libraries free a tensor's memory without dropping the tensor, by
``tensor.untyped_storage().resize_(0)``, and bring it back later. All tensors that share the storage
lose and regain their bytes.
"""

from __future__ import annotations

import gc
from typing import Any

import torch

from .gpu import gpu
from .memory import Block
from .tensor import CUDA, DeviceTensor, device_tensor


class DeviceStorage(torch.UntypedStorage):
    """The storage behind device tensors; its bytes are reached through tensors only."""

    _block: Block

    def __new__(cls, block: Block) -> DeviceStorage:
        made = super().__new__(cls, 0)  # type: ignore[call-arg]
        made._block = block
        return made

    def __init__(self, block: Block) -> None:
        pass

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return CUDA

    @property
    def is_cuda(self) -> bool:
        return True

    @property
    def _cdata(self) -> int:
        return id(self._block)

    def nbytes(self) -> int:
        return 0 if self._block.dead else self._block.nbytes

    size = __len__ = nbytes

    def data_ptr(self) -> int:
        return 0 if self._block.dead or not self._block.nbytes else self._block.address

    def resize_(self, size: int) -> DeviceStorage:
        """Bytes from ``size`` on are dropped; a block that grows keeps what it held."""
        block = self._block
        if size == self.nbytes():
            return self
        if size == 0:
            block.release()
            return self
        g = gpu()
        kept = min(size, self.nbytes())
        old = block.view(torch.uint8, kept)
        fresh = g.heap().allocate(size, g.current().agent, g.machine.sites.here())
        if kept:
            source, target = device_tensor(old, block), fresh.view(torch.uint8, kept)
            device_tensor(target, fresh).copy_(source)
        for tensor in _sharing(block):
            _move(tensor, fresh)
        self._block = fresh
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceStorage) and self._block is other._block

    def __hash__(self) -> int:
        return id(self._block)

    def __repr__(self) -> str:
        return f"<storage of {self.nbytes()} B on {CUDA}>"

    def __getitem__(self, *_: Any, **__: Any) -> Any:
        return self._refuse("access to the bytes")

    def _refuse(self, what: str) -> Any:
        gpu().refuse(f"{what} of a device storage")
        raise NotImplementedError(f"the virtual GPU has no {what} of a device storage")

    def __setitem__(self, *_: Any, **__: Any) -> None:
        self._refuse("access to the bytes")

    def copy_(self, *_: Any, **__: Any) -> Any:
        return self._refuse("copy_")

    def fill_(self, *_: Any, **__: Any) -> Any:
        return self._refuse("fill_")

    def clone(self) -> Any:
        return self._refuse("clone")

    def cpu(self) -> Any:
        return self._refuse("cpu")

    def tolist(self) -> Any:
        return self._refuse("tolist")


class TypedDeviceStorage:
    """``tensor.storage()``: sizes in elements."""

    def __init__(self, block: Block, dtype: torch.dtype) -> None:
        self._untyped_storage, self.dtype = DeviceStorage(block), dtype
        self.device, self.is_cuda = CUDA, True

    def untyped(self) -> DeviceStorage:
        return self._untyped_storage

    def nbytes(self) -> int:
        return self._untyped_storage.nbytes()

    def size(self) -> int:
        return self.nbytes() // self.dtype.itemsize

    _size = __len__ = size

    def data_ptr(self) -> int:
        return self._untyped_storage.data_ptr()

    _data_ptr = data_ptr

    def resize_(self, size: int) -> None:
        self._untyped_storage.resize_(size * self.dtype.itemsize)

    _resize_ = resize_


def untyped_storage(self: DeviceTensor) -> DeviceStorage:
    return DeviceStorage(self.block)


def typed_storage(self: DeviceTensor) -> TypedDeviceStorage:
    return TypedDeviceStorage(self.block, self.dtype)


def _sharing(block: Block) -> list[DeviceTensor]:
    """The tensors over a block. Rare enough to ask the garbage collector."""
    found = []
    for holder in gc.get_referrers(block):
        owners = gc.get_referrers(holder) if isinstance(holder, dict) else [holder]
        found += [t for t in owners if isinstance(t, DeviceTensor) and t.block is block]
    return found


def _move(tensor: DeviceTensor, block: Block) -> None:
    """The tensor's shape, over the bytes of another block."""
    raw = tensor.raw
    flat = block.view(raw.dtype, block.nbytes // raw.element_size() * raw.element_size())
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        tensor.raw = flat.as_strided(raw.shape, raw.stride(), raw.storage_offset())
    tensor.block = block
    tensor.__dict__.pop("_accesses", None)
