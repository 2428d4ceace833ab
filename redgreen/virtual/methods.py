"""Python methods of virtual tensors: what torch does in C++ with the data or the device."""

from __future__ import annotations

import copy as copying
from typing import Any

import torch

from ..trace import Access, Extent
from . import storage
from .copies import copy, pin
from .escapes import escape, read_on_host
from .gpu import BACKEND, gpu
from .modules import refuse_exchange
from .outputs import adopt
from .streams import Stream
from .tensor import CUDA, DeviceTensor, PinnedTensor, VirtualTensor, device_tensor, pinned_tensor
from .unwrapping import internals, unwrap

_Base = torch._C.TensorBase


def _device(self: DeviceTensor) -> torch.device:
    return CUDA


def check_index(device: Any) -> None:
    """There is one device."""
    if isinstance(device, (str, torch.device)):
        device = torch.device(device).index
    if isinstance(device, int) and device > 0:
        raise torch.AcceleratorError(
            "CUDA error: invalid device ordinal\n"
            "GPU device may be out of range, do you have enough GPUs?"
        )


def _to_backend(value: Any) -> Any:
    """``cuda`` as C++ knows it here."""
    if isinstance(value, torch.device) and value.type == "cuda":
        check_index(value)
        return torch.device(BACKEND, 0)
    if isinstance(value, str) and value.split(":")[0] == "cuda":
        check_index(value)
        return torch.device(BACKEND, 0)
    if isinstance(value, DeviceTensor):
        return value
    return value


def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``Tensor.to`` with ``cuda`` meaning the virtual GPU."""
    first = args[0] if args else None
    if type(first) is int:
        check_index(first)
        args = (torch.device(BACKEND, 0), *args[1:])
    elif isinstance(first, torch.Tensor):
        place = torch.device(BACKEND, 0) if isinstance(first, DeviceTensor) else first.device
        args = (place, first.dtype, *args[1:])
    args = tuple(_to_backend(a) for a in args)
    if "device" in kwargs:
        kwargs["device"] = _to_backend(kwargs["device"])
        if type(kwargs["device"]) is int:
            check_index(kwargs["device"])
            kwargs["device"] = torch.device(BACKEND, 0)
    other = kwargs.pop("other", None)
    if other is not None:
        return to(self, other, *args, **kwargs)
    return _Base.to(self, *args, **kwargs)


def cuda(
    self: torch.Tensor, device: Any = None, non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:  # fmt: skip
    check_index(device)
    return _Base.to(
        self, torch.device(BACKEND, 0), non_blocking=non_blocking, memory_format=memory_format
    )


def cpu(self: torch.Tensor, memory_format: Any = torch.preserve_format) -> torch.Tensor:
    return _Base.to(self, "cpu", memory_format=memory_format)


def record_stream(self: DeviceTensor, stream: Stream) -> None:
    """The block is not handed out again before what is queued on ``stream`` at its free is done."""
    g = gpu()
    edge, dropped = g.machine.edge("record_stream")
    if dropped:
        return
    state = stream._state
    if g.mutations is not None:
        state = g.mutations.redirected(state, (edge,))
    agent = state.agent
    if agent == self.block.stream:
        g.machine.note(
            "record-stream-on-allocating-stream", g.machine.trace_site(edge),
            "record_stream on the stream that allocated the tensor does nothing",
        )  # fmt: skip
        return
    self.block.recorded.setdefault(agent, set()).add(edge)


def tolist(self: VirtualTensor) -> Any:
    if isinstance(self, DeviceTensor):
        return cpu(self).tolist()
    read_on_host(self, "tolist")
    return self.raw.tolist()


def numpy(self: VirtualTensor, *, force: bool = False) -> Any:
    if isinstance(self, DeviceTensor):
        if force:
            return cpu(self.detach()).numpy()
        raise TypeError(
            "can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() to copy the "
            "tensor to host memory first."
        )
    if self.requires_grad and not force:
        raise RuntimeError(
            "Can't call numpy() on Tensor that requires grad. "
            "Use tensor.detach().numpy() instead."
        )
    from .arrays import track

    assert isinstance(self, PinnedTensor)
    return track(self) if gpu().break_rule != 11 else track(self).copy()


def array(self: VirtualTensor, dtype: Any = None, copy: Any = None) -> Any:
    """NumPy's C code asks for it when it is about to read (np.asarray does not come here)."""
    made = numpy(self)
    if isinstance(self, PinnedTensor):
        read_on_host(self, "__array__")
    return made if dtype is None else made.astype(dtype, copy=False)


def dlpack(self: PinnedTensor, **options: Any) -> Any:
    escape(self.block, "DLPack")
    return self.raw.__dlpack__(**options)


def untyped_storage(self: PinnedTensor) -> torch.UntypedStorage:
    escape(self.block, "untyped_storage")
    return self.raw.untyped_storage()


def typed_storage(self: PinnedTensor) -> torch.TypedStorage:
    escape(self.block, "storage")
    storage: torch.TypedStorage = self.raw._typed_storage()
    return storage


def share_memory(self: PinnedTensor) -> torch.Tensor:
    """Torch moves the bytes to a shared file, in which they are no longer pinned."""
    gpu().refuse("Tensor.share_memory_ of a pinned tensor")
    raise NotImplementedError("the virtual GPU cannot share pinned memory between processes")


def reduce(self: PinnedTensor, protocol: Any) -> Any:
    """Pickles as torch does: a CPU tensor that is not pinned, with all of its storage."""
    block = self.block
    whole = Extent(block.start, block.start + block.nbytes, block.nbytes)
    access = Access(block.memory.id, block.allocation, whole, True, False)
    gpu().machine.host_access("pickle", (access,))
    return self.raw.detach().requires_grad_(self.requires_grad).__reduce_ex__(protocol)


def apply(self: PinnedTensor, function: Any) -> torch.Tensor:
    """``apply_`` loops over the elements in C++, below the dispatcher."""
    gpu().machine.host_access("apply_", self.access(True, True))
    with internals():
        self.raw.apply_(function)
    return self


def map_with(self: PinnedTensor, other: torch.Tensor, function: Any) -> torch.Tensor:
    found = other.access(True, False) if isinstance(other, VirtualTensor) else ()
    gpu().machine.host_access("map_", self.access(True, True) + found)
    with internals():
        self.raw.map_(unwrap(other), function)
    return self


def item(self: VirtualTensor) -> Any:
    if self.numel() != 1:
        raise RuntimeError(
            f"a Tensor with {self.numel()} elements cannot be converted to Scalar"
        )
    return torch.ops.aten._local_scalar_dense.default(self.detach())


def data_ptr(self: VirtualTensor) -> int:
    if isinstance(self, PinnedTensor):
        escape(self.block, "data_ptr")
    if self.numel() == 0 or (isinstance(self, DeviceTensor) and self.block.dead):
        return 0
    return self.block.address + int(self.raw.storage_offset()) * self.raw.element_size()


def get_data(self: torch.Tensor) -> torch.Tensor:
    """The bytes without autograd: what is written through it bumps no version."""
    if isinstance(self, DeviceTensor):
        return device_tensor(self.raw, self.block, self.meta)
    if isinstance(self, PinnedTensor):
        return pinned_tensor(get_data(self.raw), self.block)
    return _Base.data.__get__(self)  # type: ignore[attr-defined, no-any-return]


def set_data(self: torch.Tensor, other: torch.Tensor) -> None:
    """``tensor.data = other``: across devices the two are exchanged, identity stays."""
    if isinstance(self, DeviceTensor) and isinstance(other, DeviceTensor):
        adopt(self, device_tensor(other.raw, other.block))
    elif isinstance(self, VirtualTensor) or isinstance(other, VirtualTensor):
        _exchange(self, other)
    else:
        _Base.data.__set__(self, other)  # type: ignore[attr-defined]


def _exchange(self: torch.Tensor, other: torch.Tensor) -> None:
    """Swaps a stand-in for ``other`` into ``self``."""
    grad_needed = self.requires_grad
    stand_in = other.detach()
    if isinstance(self, torch.nn.Parameter) and not isinstance(stand_in, torch.nn.Parameter):
        stand_in = torch.nn.Parameter(stand_in, requires_grad=grad_needed)
    else:
        stand_in.requires_grad_(grad_needed)
    grad = self.grad
    self.grad = None
    try:
        torch.utils.swap_tensors(self, stand_in)
    except RuntimeError as error:
        refuse_exchange(error)
    if grad is not None:  # torch keeps it, on the device where it was
        gpu().refuse("a tensor changes its device through .data while it has a gradient")


def deepcopy(self: VirtualTensor, memo: dict[int, Any]) -> torch.Tensor:
    if id(self) in memo:
        return memo[id(self)]  # type: ignore[no-any-return]
    if not self.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy "
            "protocol at the moment."
        )
    with torch.no_grad():
        made = self.detach().clone()
    if isinstance(self, torch.nn.Parameter):
        made = torch.nn.Parameter(made, self.requires_grad)
    else:
        made.requires_grad_(self.requires_grad)
    memo[id(self)] = made
    if self.grad is not None and not isinstance(self, torch.nn.Parameter):  # as torch has it
        made.grad = copying.deepcopy(self.grad, memo)
    return made


def represent(self: VirtualTensor, *, tensor_contents: Any = None) -> str:
    if isinstance(self, DeviceTensor):
        text = repr(cpu(self.detach()))[:-1] + ", device='cuda:0'"
    else:
        read_on_host(self, "repr")
        with internals():
            text = repr(self.raw)[:-1]
    if self.grad_fn is not None:
        text += f", grad_fn=<{type(self.grad_fn).__name__}>"
    elif self.requires_grad:
        text += ", requires_grad=True"
    return text + ")"


def resolve(self: VirtualTensor) -> torch.Tensor:
    """The wrapper does not know that its bytes are to be read as conjugated or negated."""
    return self.clone() if self.raw.is_conj() or self.raw.is_neg() else self


def formatted(self: VirtualTensor, spec: str) -> str:
    """As torch does it, but only for tensors of exactly its own class."""
    return format(item(self), spec) if self.dim() == 0 else object.__format__(self, spec)


def install_methods() -> None:
    """Gives both classes their methods; done once, they only matter while tensors exist."""
    for name, method in {
        "to": to, "cuda": cuda, "cpu": cpu, "tolist": tolist, "numpy": numpy, "__array__": array,
        "item": item, "data_ptr": data_ptr, "__deepcopy__": deepcopy, "__repr__": represent,
        "__format__": formatted, "resolve_conj": resolve, "resolve_neg": resolve,
        "is_conj": lambda self: self.raw.is_conj(), "is_neg": lambda self: self.raw.is_neg(),
        "record_stream": record_stream, "data": property(get_data, set_data),
        "is_pinned": lambda self, device=None: isinstance(self, PinnedTensor),
        "pin_memory": lambda self, device=None: pin(gpu(), self),
        "__float__": lambda self: float(item(self)), "__int__": lambda self: int(item(self)),
        "__complex__": lambda self: complex(item(self)),
    }.items():  # fmt: skip
        setattr(VirtualTensor, name, method)
    for name, method in {
        "__dlpack__": dlpack, "untyped_storage": untyped_storage, "storage": typed_storage,
        "_typed_storage": typed_storage, "share_memory_": share_memory, "__reduce_ex__": reduce,
        "apply_": apply, "map_": map_with,
    }.items():  # fmt: skip
        setattr(PinnedTensor, name, method)
    DeviceTensor.untyped_storage = storage.untyped_storage  # type: ignore
    DeviceTensor.set_ = storage.set_  # type: ignore
    DeviceTensor.__reduce_ex__ = storage.reduce  # type: ignore
    DeviceTensor.storage = DeviceTensor._typed_storage = storage.typed_storage  # type: ignore
    DeviceTensor.device = property(_device)  # type: ignore[assignment]
    DeviceTensor.is_cuda = property(lambda self: True)  # type: ignore[assignment]
    DeviceTensor.get_device = lambda self: 0  # type: ignore[method-assign]
    DeviceTensor.is_cpu = property(lambda self: False)  # type: ignore[assignment]


__all__ = ["copy", "install_methods", "unwrap"]
