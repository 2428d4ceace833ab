"""What an operator on virtual tensors does: enqueue it, view at once, wait, or access host memory.

`dispatch` is called below autograd for every operator with a device or pinned argument, in every
thread. A plan is chosen once per operator:

* composite: CompositeImplicit operators arrive whole under inference_mode; decompose them.
* view: metadata only, at once, sharing the block.
* special: copies, conversions, scalars, resizes and the like, registered by `special`.
* device: everything else with a device argument. Output metadata come from the meta kernel,
  cached; the kernel itself is work on the current stream and runs whenever the schedule says.
* host: operators on pinned memory alone run at once and are host accesses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from .gpu import GPU, gpu
from .metadata import cannot_run
from .operators import Operator
from .outputs import adopt
from .tensor import DeviceTensor, VirtualTensor, device_tensor, pinned_tensor
from .unwrapping import unwrap

aten = torch.ops.aten
Plan = Callable[[GPU, Any, tuple[Any, ...], dict[str, Any]], Any]
_COMPOSITE = torch._C.DispatchKey.CompositeImplicitAutograd
_special: dict[Any, Plan] = {}
_plans: dict[Any, Plan] = {}


def special(*overloads: Any) -> Callable[[Plan], Plan]:
    """Registers a plan for operators whose rule is their own."""

    def register(plan: Plan) -> Plan:
        _special.update(dict.fromkeys(overloads, plan))
        return plan

    return register


def dispatch(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    plan = _plans.get(func)
    if plan is None:
        plan = _plans[func] = _choose(func)
    g = gpu()
    if g.local.backward is not None:
        g.local.backward.operator()
    return plan(g, func, args, kwargs)


def _choose(func: Any) -> Plan:
    plan = _special.get(func)
    if plan is not None:
        return plan
    if "sparse" in func._schema.name or "nested" in func._schema.name:
        return _other_layout
    has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
    # With a kernel of its own on the CPU it has one on CUDA as well (silu_backward).
    implicit = has_kernel(func.name(), "CompositeImplicitAutograd")
    if implicit and func.namespace == "aten" and not has_kernel(func.name(), "CPU"):
        return _composite
    if torch.Tag.inplace_view in func.tags:
        return _view_in_place
    schema = func._schema
    if schema.name in SILENT_VIEWS and not any(a.is_out for a in schema.arguments):
        return _view
    aliases = [a.alias_info for a in schema.arguments]
    if not any(a is not None and a.is_write for a in aliases) and any(
        r.alias_info is not None for r in schema.returns
    ):
        return _view
    return Operator(func)


def _other_layout(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    raise cannot_run(func, "its memory is that of strided tensors, no sparse or nested ones")


def _composite(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    # Not func.decompose(): for some operators torch registers another decomposition in Python
    # (dropout in evaluation returns a copy there, its argument here and on CUDA).
    return func._op_dk(_COMPOSITE, *args, **kwargs)


# -- views -----------------------------------------------------------------------------------------


def rewrap(real: Any, like: VirtualTensor) -> Any:
    """Tensors over the bytes of ``like``'s block."""
    if isinstance(real, torch.Tensor):
        if isinstance(like, DeviceTensor):
            made = device_tensor(real, like.block)
            if like.block.dead and "_accesses" in like.__dict__:
                made._accesses = like._accesses  # a view of freed memory fails as its base does
            return made
        return pinned_tensor(real, like.block)
    if isinstance(real, (list, tuple)):
        return type(real)(rewrap(r, like) for r in real)
    return real


# Views by implementation, on the CPU and on CUDA, though their schemas do not say so.
SILENT_VIEWS = {
    "aten::_unsafe_view", "aten::unsafe_split", "aten::unsafe_split_with_sizes", "aten::lift",
}  # fmt: skip


def _view_in_place(
    gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> torch.Tensor:
    """``squeeze_`` and the like: the tensor gets other metadata, its bytes stay where they are."""
    tensor: VirtualTensor = args[0]
    real = torch.ops.aten.alias.default(tensor.raw)  # queued work holds the old one
    func(real, *args[1:], **kwargs)
    adopt(tensor, rewrap(real, tensor))
    return tensor


def _view(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    like = next((a for a in args if isinstance(a, VirtualTensor)), None)
    if like is None:  # a view of a plain tensor with a virtual index or the like
        return func(*unwrap(args), **unwrap(kwargs))
    return rewrap(func(*unwrap(args), **kwargs), like)
