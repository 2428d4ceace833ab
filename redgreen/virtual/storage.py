"""Storages of device tensors: identity, size, and the block that ``resize_`` frees or brings back.

FSDP and offloading libraries free a tensor's memory without dropping the tensor, by
``tensor.untyped_storage().resize_(0)``, and bring it back later. All tensors that share the storage
lose and regain their bytes. A kernel that uses them in between gets a null pointer: CUDA reports an
illegal memory access at the next sync.
"""

from __future__ import annotations

import functools
import gc
import sys
import weakref
from collections import OrderedDict
from typing import Any

import torch

from ..trace import Access
from .gpu import gpu
from .memory import Block
from .outputs import adopt
from .tensor import CUDA, DeviceTensor, device_tensor
from .unwrapping import internals
from .work import Work

_blocks: weakref.WeakValueDictionary[int, Block] = weakref.WeakValueDictionary()  # by _cdata


class DeviceStorage(torch.UntypedStorage):
    """The storage behind device tensors."""

    _block: Block

    def __new__(cls, block: Block) -> DeviceStorage:
        made = super().__new__(cls, 0)  # type: ignore[call-arg]
        made._block = block
        block.storage = weakref.ref(made)
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
        """An identity, no address: what takes it for one has a stand-in (`use_count`)."""
        block = self._block
        identity = 1 + (block.allocation if block.origin < 0 else block.origin)
        _blocks[identity] = block
        return identity

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
            for tensor in _sharing(block):
                tensor._accesses = _Freed()
            return self
        g = gpu()
        kept = min(size, self.nbytes())
        fresh = g.heap().allocate(size, g.current().agent, g.machine.sites.here())
        fresh.origin = self._cdata - 1
        fresh.captured = g.current().capture is not None
        if kept:  # resize_bytes_cuda: a device copy on the current stream
            source = device_tensor(block.view(torch.uint8, kept), block)
            device_tensor(fresh.view(torch.uint8, kept), fresh).copy_(source)
        for tensor in _sharing(block):
            _move(tensor, fresh)
        block.release()
        self._block = fresh
        fresh.storage = weakref.ref(self)
        return self

    def __eq__(self, other: object) -> bool:
        return isinstance(other, DeviceStorage) and self._cdata == other._cdata

    def __hash__(self) -> int:
        return hash(self._cdata)

    def __repr__(self) -> str:
        return f"<storage of {self.nbytes()} B on {CUDA}>"

    # -- bytes, as a tensor has them -------------------------------------------------------------

    def _bytes(self) -> DeviceTensor:
        return device_tensor(self._block.view(torch.uint8, self.nbytes()), self._block)

    def cpu(self) -> torch.UntypedStorage:
        return self._bytes().cpu().untyped_storage()

    def tolist(self) -> list[int]:
        return self._bytes().tolist()

    def copy_(  # type: ignore[override]
        self, source: Any, non_blocking: Any = None
    ) -> DeviceStorage:
        if isinstance(source, DeviceStorage):
            other: torch.Tensor = source._bytes()
        else:
            other = torch.empty(0, dtype=torch.uint8).set_(source)
        self._bytes().copy_(other, non_blocking=bool(non_blocking))
        return self

    def clone(self) -> DeviceStorage:
        return storage_of(self._bytes().clone().block)  # type: ignore[attr-defined]

    def fill_(self, value: Any) -> DeviceStorage:
        self._bytes().fill_(value)
        return self

    def __getitem__(self, index: Any) -> Any:
        found = self._bytes()[index]
        if found.dim() == 0:
            return found.item()
        return storage_of(found.clone().block)  # type: ignore[attr-defined]

    def __setitem__(self, index: Any, value: Any) -> None:
        self._bytes()[index] = value

    def to(self, *, device: Any, non_blocking: bool = False) -> torch.UntypedStorage:
        return self if torch.device(device).type == "cuda" else self.cpu()

    def cuda(self, device: Any = None, non_blocking: bool = False) -> DeviceStorage:
        return self

    # What torch.save and torch.load of the legacy format (also that of pickle) ask for.

    def _write_file(self, *args: Any) -> None:
        self.cpu()._write_file(*args)

    def _set_from_file(self, *args: Any) -> None:
        host = torch.UntypedStorage(self.nbytes())
        host._set_from_file(*args)
        self.copy_(host)


def new_storage(nbytes: int) -> DeviceStorage:
    """A storage of its own, on the current stream."""
    g = gpu()
    return storage_of(g.heap().allocate(nbytes, g.current().agent, g.machine.sites.here()))


@functools.cache
def to_device(original: Any) -> Any:
    """``UntypedStorage.to``, by which torch.load brings storages to their device."""

    @functools.wraps(original)
    def to(self: torch.UntypedStorage, *, device: Any, non_blocking: bool = False) -> Any:
        if torch.device(device).type != "cuda":
            return original(self, device=device, non_blocking=non_blocking)
        return new_storage(self.nbytes()).copy_(self, non_blocking)

    return to


class _Freed(dict[Any, Any]):
    """In place of the accesses of a tensor whose storage was freed: they fail when they execute."""

    def get(self, *_: Any) -> tuple[Access, ...]:
        def run(work: Work) -> None:
            raise torch.AcceleratorError("CUDA error: an illegal memory access was encountered")

        gpu().op("access to a freed storage", run, ())
        return ()


def storage_of(block: Block) -> DeviceStorage:
    """The one storage object of a block."""
    known: DeviceStorage | None = None if block.storage is None else block.storage()
    return DeviceStorage(block) if known is None else known


def untyped_storage(self: DeviceTensor) -> DeviceStorage:
    return storage_of(self.block)


def typed_storage(self: DeviceTensor) -> torch.TypedStorage:
    return torch.TypedStorage(
        wrap_storage=storage_of(self.block), dtype=self.dtype, _internal=True
    )


@functools.cache
def use_count(original: Any) -> Any:
    """``torch._C._storage_Use_Count``, which takes the address that ``_cdata`` is elsewhere.

    Libraries compare two counts, to find out whether somebody else still holds the storage.
    """

    @functools.wraps(original)
    def count(cdata: int) -> int:
        block = _blocks.get(cdata)
        if block is None:
            return original(cdata)  # type: ignore[no-any-return]
        return sys.getrefcount(block) - 2  # tensors and storages; not our name and its argument

    return count


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
    tensor.__dict__.pop("_accesses", None)
    tensor.block = block
    where = tensor.access(True, False)
    if where and where[0].extent.stop > block.start + block.nbytes:  # it does not fit any more
        tensor._accesses = _Freed()
        return
    flat = block.view(raw.dtype, block.nbytes // raw.element_size() * raw.element_size())
    with internals():
        tensor.raw = flat.as_strided(raw.shape, raw.stride(), raw.storage_offset())
    tensor.__dict__.pop("_accesses", None)


def set_(self: torch.Tensor, source: Any = None, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``tensor.set_(storage, offset, size, stride)`` over the storage of a device tensor."""
    if isinstance(source, torch.TypedStorage):
        source = source._untyped_storage
    if not isinstance(source, DeviceStorage) or not isinstance(self, DeviceTensor):
        given = (source, *args) if source is not None else args
        return torch._C.TensorBase.set_(self, *given, **kwargs)
    block, dtype = source._block, self.dtype
    named = {**dict(zip(("storage_offset", "size", "stride"), args, strict=False)), **kwargs}
    size = named.get("size", (source.nbytes() // dtype.itemsize,))
    stride = named.get("stride") or torch.empty(size, device="meta").stride()
    with internals():
        flat = block.view(dtype, source.nbytes() // dtype.itemsize * dtype.itemsize)
        real = flat.as_strided(size, stride, named.get("storage_offset", 0))
    adopt(self, device_tensor(real, block))
    return self


_OWN = {"raw", "block", "meta", "_accesses", "_is_param"}


def reduce(self: DeviceTensor, protocol: Any) -> Any:
    """Pickles as torch does: storage, offset, shape; tensors of one storage still share it."""
    if isinstance(self, torch.nn.Parameter):
        data = device_tensor(self.raw, self.block, self.meta)
        made: Any = (torch._utils._rebuild_parameter, (data, self.requires_grad, OrderedDict()))
    else:
        raw = self.raw
        made = (
            torch._utils._rebuild_tensor_v2,
            (typed_storage(self), raw.storage_offset(), tuple(raw.shape), raw.stride(),
             self.requires_grad, OrderedDict()),
        )  # fmt: skip
    state = {k: v for k, v in self.__dict__.items() if k not in _OWN}
    if not state:
        return made
    return (torch._tensor._rebuild_from_type_v2, (made[0], torch.Tensor, made[1], state))
