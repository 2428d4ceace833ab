"""``nn.Module.to``: parameters keep their identity, also across devices.

Torch assigns ``param.data`` where C++ allows it, so that optimizers and tied weights still hold the
parameter. Between a host tensor and a device tensor of the virtual GPU that is not allowed; there
the two are exchanged (``torch.utils.swap_tensors``), which no autograd graph may hold.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from .gpu import gpu
from .tensor import VirtualTensor

_future = torch.__future__


@functools.cache
def converting(original: Callable[..., Any]) -> Callable[..., Any]:
    """``nn.Module._apply``, with an exchange for the parameters that need one."""

    @functools.wraps(original)
    def apply(
        self: torch.nn.Module, fn: Callable[[Tensor], Tensor], recurse: bool = True
    ) -> torch.nn.Module:
        for child in self.children() if recurse else ():
            child._apply(fn)
        made: dict[int, Tensor] = {}
        crosses = False
        for parameter in self._parameters.values():
            if parameter is not None and id(parameter) not in made:
                with torch.no_grad():
                    found = made[id(parameter)] = fn(parameter)
                crosses |= _kind(found) is not _kind(parameter)
        swap = _future.get_swap_module_params_on_conversion()
        _future.set_swap_module_params_on_conversion(swap or crosses)
        try:
            original(self, lambda t: made.pop(id(t), None) if id(t) in made else fn(t), False)
        except RuntimeError as error:
            if "Couldn't swap" in str(error):
                refuse_exchange(error)
            raise
        finally:
            _future.set_swap_module_params_on_conversion(swap)
        return self

    return apply


def refuse_exchange(error: BaseException) -> None:
    """CUDA would do it; here something in C++ holds the tensor."""
    text = "a parameter changes its device while an autograd graph holds it"
    gpu().refuse(text)
    raise NotImplementedError(
        f"the virtual GPU cannot do this: {text}. Drop the outputs of earlier forward passes first."
    ) from error


def _kind(tensor: Tensor) -> type | None:
    return type(tensor) if isinstance(tensor, VirtualTensor) else None
