"""Python methods that touch pinned memory without an operator, and factories that copy in C++.

What reads or writes once is a host access. What hands the address out makes the block escape: the
host may use it at any time from then on, and a verdict says that it assumes order there.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch

from ..virtual.patches import Patches
from .session import Session

_HAND_OUT = {
    "numpy": "numpy", "__array__": "__array__", "data_ptr": "data_ptr", "__dlpack__": "DLPack",
    "untyped_storage": "untyped_storage", "storage": "storage", "_typed_storage": "storage",
    "share_memory_": "share_memory_",
}  # fmt: skip
_READ = {"tolist": "tolist", "__reduce_ex__": "pickle", "__repr__": "repr"}
_WRITE = {"apply_": "apply_", "map_": "map_"}


def install(s: Session, patches: Patches) -> None:
    for name, how in _HAND_OUT.items():
        patches.set(torch.Tensor, name, _handing_out(s, getattr(torch.Tensor, name), how))
    for name, what in _READ.items():
        patches.set(torch.Tensor, name, _accessing(s, getattr(torch.Tensor, name), what, False))
    for name, what in _WRITE.items():
        patches.set(torch.Tensor, name, _accessing(s, getattr(torch.Tensor, name), what, True))
    for name in ("tensor", "as_tensor", "asarray"):
        patches.set(torch, name, _from_data(s, getattr(torch, name)))


def _pinned(s: Session, tensor: torch.Tensor) -> bool:
    if s.closed or tensor.device.type != "cpu" or tensor.layout is not torch.strided:
        return False
    block = s.blocks.of(tensor)
    return block is not None and block.pinned


def _handing_out(s: Session, original: Any, how: str) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if _pinned(s, self):
            block, machine = s.blocks.of(self), s.machine
            assert block is not None
            site = machine.sites.sites[machine.sites.here()]
            text = f"pinned {block.nbytes} B by {how} at {site.file}:{site.line}"
            if text not in machine.trace.escapes:
                machine.trace.escapes.append(text)
        return original(self, *args, **kwargs)

    return method


def _accessing(s: Session, original: Any, what: str, writes: bool) -> Callable[..., Any]:
    @functools.wraps(original)
    def method(self: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
        if _pinned(s, self):
            s.host_access(what, s.blocks.access(self, True, writes))
        elif what == "tolist" and self.device.type == s.driver.device_type:
            return original(self.cpu())
        return original(self, *args, **kwargs)

    return method


def _from_data(s: Session, original: Callable[..., Any]) -> Callable[..., Any]:
    """torch.tensor and its like: of what is no tensor they copy in C++, where no mode sees it; so
    it becomes a tensor of the host first. A tensor goes through operators that the mode sees."""

    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> Any:
        first = args[0] if args else kwargs.get("data", kwargs.get("obj"))
        if s.closed:
            return original(*args, **kwargs)
        pinned = kwargs.pop("pin_memory", False)
        named = kwargs.get("device")
        device = torch.get_default_device() if named is None else torch.device(named)
        moves = not isinstance(first, torch.Tensor) and device.type == s.driver.device_type
        wants_grad = (moves or pinned) and kwargs.pop("requires_grad", False)
        if moves:
            made = original(*args, **{**kwargs, "device": "cpu"}).to(device)
        else:
            made = original(*args, **kwargs)
        made = made.pin_memory() if pinned else made
        return made.requires_grad_() if wants_grad else made

    return factory
