"""Functions of torch that make tensors or generators where C++ would want a CUDA build.

Factories like ``torch.zeros`` reach the CUDA key by themselves and need nothing but help with
``pin_memory=True``. The ones here build on the host and copy, or look at the device in C++.
"""

from __future__ import annotations

import functools
import os
import weakref
from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._device import DeviceContext, _device_constructors

from . import array_functions
from .copies import pin
from .gpu import BACKEND, GPU, gpu
from .methods import check_index, cuda, get_data, set_data, to
from .patches import Patches
from .random import DEFAULT_SEED, Counter, counters
from .tensor import DeviceTensor, VirtualTensor

_PINNING = (
    "empty", "zeros", "ones", "full", "rand", "randn", "randint", "arange", "empty_like",
    "zeros_like", "ones_like", "full_like", "rand_like", "randn_like", "linspace", "logspace",
    "eye", "empty_strided", "randperm", "scalar_tensor",
)  # fmt: skip
_NEW = ("new_empty", "new_zeros", "new_ones", "new_full", "new_empty_strided")


def on_gpu(device: Any) -> bool:
    """Does this device argument mean the virtual GPU?"""
    if isinstance(device, str):
        return device.split(":")[0] == "cuda"
    if isinstance(device, torch.device):
        return device.type in ("cuda", BACKEND)
    return type(device) is int


def _default_device() -> torch.device | None:
    """Of ``with torch.device(...)`` or set_default_device. (torch asks torch.tensor itself.)"""
    for mode in reversed(_get_current_function_mode_stack()):
        if isinstance(mode, DeviceContext):
            return mode.device
    return None


@functools.cache
def _pinning(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> Any:
        if not kwargs.get("pin_memory"):
            return original(*args, **kwargs)
        del kwargs["pin_memory"]
        made = original(*args, **kwargs)
        if isinstance(made, DeviceTensor):
            raise RuntimeError("Only dense CPU tensors can be pinned")
        needs_grad = made.requires_grad
        return pin(gpu(), made.detach()).requires_grad_(needs_grad)

    return factory


@functools.cache
def _from_data(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch.tensor, torch.as_tensor, torch.asarray, Tensor.new_tensor."""

    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> Any:
        device = kwargs.pop("device", None)
        pinned = kwargs.pop("pin_memory", False)
        wants_grad = kwargs.pop("requires_grad", False)
        if device is None:
            first = args[0] if args else kwargs.get("data")
            if isinstance(first, VirtualTensor):
                device = first.device
            elif original is not torch._C.TensorBase.new_tensor:
                device = _default_device()
        else:
            check_index(device)
        if device is None or not on_gpu(device):
            if device is not None:
                kwargs["device"] = device
            made = original(*args, **kwargs)
            made = pin(gpu(), made) if pinned else made
        else:
            made = to(_on_host(original, args, kwargs), torch.device(BACKEND, 0))
        return made.requires_grad_() if wants_grad else made

    return factory


def _on_host(original: Callable[..., Any], args: Any, kwargs: Any) -> torch.Tensor:
    """The tensor on the CPU; values of device tensors nested in lists are fetched one by one."""
    source = args[0]
    if original is torch._C.TensorBase.new_tensor:
        dtype = kwargs.pop("dtype", None) or source.dtype
        return _on_host(torch.tensor, args[1:], {**kwargs, "dtype": dtype})
    if isinstance(source, torch.Tensor):
        dtype = kwargs.get("dtype") or source.dtype
        if original is _originals["tensor"]:
            return source.detach().clone().to(dtype)
        return source.to(dtype)
    return original(_fetch(source), *args[1:], **kwargs, device="cpu")  # type: ignore[no-any-return]


def _fetch(data: Any) -> Any:
    if isinstance(data, DeviceTensor):
        return data.tolist()
    if isinstance(data, (list, tuple)):
        return [_fetch(d) for d in data]
    return data


_originals: dict[str, Callable[..., Any]] = {}


class VirtualGenerator(torch.Generator):
    """A generator of the device: a seed and an offset."""

    def __new__(cls, device: Any = "cpu") -> Any:
        if not on_gpu(device):
            return torch._C.Generator(device)
        return super().__new__(cls)

    def __init__(self, device: Any = "cpu") -> None:
        self.counter = Counter(DEFAULT_SEED)  # found by address: C++ wraps the generator anew
        address: int = self._cdata  # type: ignore[attr-defined]
        counters[address] = self.counter
        weakref.finalize(self, counters.pop, address).atexit = False

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return torch.device("cuda", 0)

    def manual_seed(self, seed: int) -> torch.Generator:
        self.counter.seed, self.counter.offset = int(seed), 0
        return self

    def initial_seed(self) -> int:
        return self.counter.seed

    def seed(self) -> int:
        """From the system's entropy: two recordings differ if it matters."""
        seed = int.from_bytes(os.urandom(6), "little")
        self.manual_seed(seed)
        return seed

    def get_state(self) -> torch.Tensor:
        return torch.tensor([self.counter.seed, self.counter.offset]).view(torch.uint8)

    def set_state(self, state: torch.Tensor) -> torch.Generator:
        self.counter.seed, self.counter.offset = state.view(torch.int64).tolist()
        return self

    def clone_state(self) -> torch.Generator:
        made = VirtualGenerator("cuda")
        made.set_state(self.get_state())
        return made


def default_generator(g: GPU) -> torch.Generator:
    """The device's own, as ``torch.cuda.default_generators`` has it."""
    made = VirtualGenerator("cuda")
    made.counter = counters[made._cdata] = g.random.default  # type: ignore[attr-defined]
    return made


def install(patches: Patches) -> None:
    """Patches torch's factories and Tensor's conversions."""
    _device_constructors()  # a cache of torch's own functions, which are called from here on
    for name in _PINNING:
        patches.set(torch, name, _pinning(getattr(torch, name)))
    for name in ("tensor", "as_tensor", "asarray"):
        _originals[name] = getattr(torch, name)
        patches.set(torch, name, _from_data(getattr(torch, name)))
    patches.set(torch, "Generator", VirtualGenerator)
    base = torch._C.TensorBase
    for name in _NEW:
        patches.set(torch.Tensor, name, _pinning(getattr(base, name)))
    patches.set(torch.Tensor, "new_tensor", _from_data(base.new_tensor))
    patches.set(torch.Tensor, "to", to)
    patches.set(torch.Tensor, "cuda", cuda)
    patches.set(torch.Tensor, "data", property(get_data, set_data))
    patches.set(torch.Tensor, "pin_memory", lambda self, device=None: pin(gpu(), self))
    patches.set(torch.Tensor, "is_pinned", lambda self, device=None: False)
    array_functions.install(patches)
