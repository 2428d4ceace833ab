"""What an operator returns, and what it complains about, at the call; its kernel runs later."""

from __future__ import annotations

from typing import Any

import torch
from torch._library.custom_ops import OPDEFS
from torch._prims_common import suggest_memory_format

from .gpu import gpu
from .unwrapping import Arguments, internals, unwrap

aten = torch.ops.aten
_metas: dict[Any, Any] = {}


def to_meta(value: Any) -> Any:
    if isinstance(value, torch.Tensor):
        meta = aten.empty_strided.default(
            list(value.shape), list(value.stride()), dtype=value.dtype, device="meta"
        )
        return meta
    if isinstance(value, (list, tuple)):
        return type(value)([to_meta(v) for v in value])
    if isinstance(value, torch.device):
        return torch.device("meta")
    if isinstance(value, torch.Generator):
        return None
    return value


def to_sample(value: Any) -> Any:
    """Stand-in CPU tensors for operators without a meta kernel: zeros of the same layout."""
    if isinstance(value, torch.Tensor):
        sample = aten.empty_strided.default(
            list(value.shape), list(value.stride()), dtype=value.dtype
        )
        return aten.zero_.default(sample)
    if isinstance(value, (list, tuple)):
        return type(value)([to_sample(v) for v in value])
    return unwrap(value)


def _describe(result: Any) -> Any:
    if isinstance(result, torch.Tensor):
        return (tuple(result.shape), result.stride(), result.dtype)
    if isinstance(result, (list, tuple)):
        return [_describe(r) for r in result]
    return None if result is None else (result,)


def result_metas(func: Any, given: Arguments) -> Any:
    """(shape, strides, dtype) of every output, without running the kernel."""
    key: Any = (func, given.key)
    try:
        return _metas[key]
    except KeyError:
        pass
    except TypeError:  # an argument that cannot be hashed
        key = None
    with internals():
        metas = _describe(_learn(func, given.args, given.kwargs))
        if func in _CONVOLUTIONS:
            metas = _channels_last(func, given.args, metas)
    if key is not None:
        _metas[key] = metas
    return metas


_CONVOLUTIONS = {aten.convolution.default, aten.convolution_backward.default}


def _channels_last(func: Any, args: tuple[Any, ...], metas: Any) -> Any:
    """CUDA's layout, which the meta kernel does not know (cudnn_conv_suggest_memory_format)."""
    operands = args[:2] if func is aten.convolution.default else args[1:3]
    formats = [suggest_memory_format(to_meta(t)) for t in operands]
    chosen = next((f for f in formats if f is not torch.contiguous_format), None)
    if chosen is None:
        return metas
    several = isinstance(metas, list)
    found = [
        (m[0], torch.empty(m[0], device="meta", memory_format=chosen).stride(), m[2])
        if m is not None and len(m[0]) == operands[0].dim() else m
        for m in (metas if several else [metas])
    ]  # fmt: skip
    return found if several else found[0]


def _learn(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What the operator returns, by its meta kernel.

    Where there is none, or it complains, the CPU's kernel is asked with zeros: it has the shape, or
    the words that CUDA's kernel has as well.
    """
    refuse_foreign(func)
    try:
        return func(*to_meta(args), **{k: to_meta(v) for k, v in kwargs.items()})
    except Exception:
        return on_samples(func, args, kwargs)


def on_samples(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    state = torch.default_generator.get_state()
    try:
        return func(*to_sample(args), **{k: to_sample(v) for k, v in kwargs.items()})
    except NotImplementedError as error:
        raise cannot_run(func, str(error)) from None
    finally:
        torch.default_generator.set_state(state)


def cannot_run(func: Any, why: str) -> NotImplementedError:
    """The error for an operator that the virtual GPU cannot run; no verdict is proved past it."""
    text = f"{func} cannot run on the virtual GPU: {why.splitlines()[0]}"
    gpu().refuse(text)
    return NotImplementedError(
        f"{text}\nGive it a kernel for the CPU and one without data: "
        "torch.library.register_kernel, torch.library.register_fake."
    )


def refuse_foreign(func: Any) -> None:
    """A custom operator of which its author says that it is for other devices only."""
    if func.namespace in ("aten", "prims"):
        return
    definition = OPDEFS.get(func._schema.name)
    devices = None if definition is None else definition._backend_fns
    if devices and not {None, "cuda"} & devices.keys():
        raise cannot_run(func, f"it has kernels for {sorted(map(str, devices))} and none for cuda")


def check_arguments(func: Any, given: Arguments) -> None:
    """Raises at the call what shapes, dtypes and overlaps raise there; the kernel runs later."""
    key: Any = (func, given.key)
    try:
        if key in _metas:
            return
    except TypeError:  # an argument that cannot be hashed
        key = None
    with internals():
        _learn(func, given.args, given.kwargs)
    if key is not None:
        _metas[key] = None


def check_overlap(target: torch.Tensor) -> None:
    """An expanded tensor cannot be written (at::assert_no_internal_overlap)."""
    if 0 in target.stride() and any(
        stride == 0 and size > 1 for stride, size in zip(target.stride(), target.shape, strict=True)
    ):
        raise RuntimeError(
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. Please clone() the tensor before performing the operation."
        )
