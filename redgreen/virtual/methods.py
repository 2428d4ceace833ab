"""Python methods of virtual tensors: what torch does in C++ with the data or the device."""

from __future__ import annotations

import copy as copying
from typing import Any

import torch

from .copies import copy, pin
from .dispatch import adopt, internals, unwrap
from .gpu import BACKEND, gpu
from .streams import Stream
from .tensor import CUDA, DeviceTensor, PinnedTensor, VirtualTensor, device_tensor

_Base = torch._C.TensorBase


def _device(self: DeviceTensor) -> torch.device:
    return CUDA


def _to_backend(value: Any) -> Any:
    """``cuda`` as C++ knows it here."""
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device(BACKEND, 0)
    if isinstance(value, str) and value.split(":")[0] == "cuda":
        return torch.device(BACKEND, 0)
    if isinstance(value, DeviceTensor):
        return value
    return value


def to(self: torch.Tensor, *args: Any, **kwargs: Any) -> torch.Tensor:
    """``Tensor.to`` with ``cuda`` meaning the virtual GPU."""
    first = args[0] if args else None
    if type(first) is int:
        args = (torch.device(BACKEND, 0), *args[1:])
    elif isinstance(first, torch.Tensor):
        place = torch.device(BACKEND, 0) if isinstance(first, DeviceTensor) else first.device
        args = (place, first.dtype, *args[1:])
    args = tuple(_to_backend(a) for a in args)
    if "device" in kwargs:
        kwargs["device"] = _to_backend(kwargs["device"])
        if type(kwargs["device"]) is int:
            kwargs["device"] = torch.device(BACKEND, 0)
    other = kwargs.pop("other", None)
    if other is not None:
        return to(self, other, *args, **kwargs)
    return _Base.to(self, *args, **kwargs)


def cuda(
    self: torch.Tensor, device: Any = None, non_blocking: bool = False,
    memory_format: torch.memory_format = torch.preserve_format,
) -> torch.Tensor:  # fmt: skip
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
    agent = stream._state.agent
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


def read_on_host(self: VirtualTensor, what: str) -> None:
    gpu().machine.host_access(what, self.access(True, False))


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

    return track(self)


def array(self: VirtualTensor, dtype: Any = None, copy: Any = None) -> Any:
    made = numpy(self)
    return made if dtype is None else made.astype(dtype, copy=False)


def item(self: VirtualTensor) -> Any:
    if self.numel() != 1:
        raise RuntimeError(
            f"a Tensor with {self.numel()} elements cannot be converted to Scalar"
        )
    return torch.ops.aten._local_scalar_dense.default(self.detach())


def data_ptr(self: VirtualTensor) -> int:
    if isinstance(self, PinnedTensor):
        escape(self, "data_ptr")
    if self.numel() == 0:
        return 0
    return self.block.address + self.raw.storage_offset() * self.raw.element_size()


def escape(self: VirtualTensor, how: str) -> None:
    """The block's host accesses can no longer all be seen."""
    machine = gpu().machine
    site = machine.sites.sites[machine.sites.here()]
    text = f"pinned {self.block.nbytes} B by {how} at {site.file}:{site.line}"
    if text not in machine.trace.escapes:
        machine.trace.escapes.append(text)


def get_data(self: torch.Tensor) -> torch.Tensor:
    if isinstance(self, VirtualTensor):
        return self.detach()
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
    torch.utils.swap_tensors(self, stand_in)
    if grad is not None:
        self._backward_grad = grad  # type: ignore[attr-defined]


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
    if self.grad is not None:
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


def install_methods() -> None:
    """Gives both classes their methods; done once, they only matter while tensors exist."""
    for name, method in {
        "to": to, "cuda": cuda, "cpu": cpu, "tolist": tolist, "numpy": numpy, "__array__": array,
        "item": item, "data_ptr": data_ptr, "__deepcopy__": deepcopy, "__repr__": represent,
        "record_stream": record_stream, "data": property(get_data, set_data),
        "is_pinned": lambda self, device=None: isinstance(self, PinnedTensor),
        "pin_memory": lambda self, device=None: pin(gpu(), self),
        "__float__": lambda self: float(item(self)), "__int__": lambda self: int(item(self)),
        "__complex__": lambda self: complex(item(self)),
    }.items():  # fmt: skip
        setattr(VirtualTensor, name, method)
    DeviceTensor.device = property(_device)  # type: ignore[assignment]
    DeviceTensor.is_cuda = property(lambda self: True)  # type: ignore[assignment]
    DeviceTensor.get_device = lambda self: 0  # type: ignore[assignment, method-assign]
    DeviceTensor.is_cpu = property(lambda self: False)  # type: ignore[assignment]


__all__ = ["copy", "install_methods", "unwrap"]
