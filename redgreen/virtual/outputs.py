"""Device memory for what operators return, and device tensors that change their shape."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch

from .gpu import GPU, gpu
from .metadata import on_samples, to_meta, to_sample
from .tensor import DeviceTensor, Meta, VirtualTensor, device_tensor
from .unwrapping import internals
from .work import Work

aten = torch.ops.aten
_as_strided = torch._C._VariableFunctions.as_strided


@lru_cache(maxsize=65536)
def _nbytes(meta: Meta) -> int:
    shape, strides, dtype = meta
    if 0 in shape:
        return 0
    return dtype.itemsize * (1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True)))


def allocate(gpu: GPU, meta: Meta, site: int | None = None) -> DeviceTensor:
    """A new device tensor on the current stream."""
    nbytes = _nbytes(meta)
    where = gpu.machine.sites.here() if site is None else site
    stream = gpu.current()
    block = gpu.heap().allocate(nbytes, stream.agent, where)
    block.captured = stream.capture is not None
    shape, strides, dtype = meta
    return device_tensor(_as_strided(block.view(dtype, nbytes), shape, strides), block, meta)


def allocate_all(gpu: GPU, metas: Any, site: int) -> Any:
    if metas is None:
        return None
    if isinstance(metas, list):
        return [allocate_all(gpu, m, site) for m in metas]
    if len(metas) == 1:
        return metas[0]  # a number, not a tensor
    return allocate(gpu, metas, site)


def store(into: list[Any], results: Any) -> None:
    """Puts results into their blocks, where the operator could not write there itself."""
    for target, result in zip(into, results, strict=True):
        if isinstance(target, torch.Tensor):
            if result.numel():  # in evaluation the CPU's batch norm returns no statistics
                target.copy_(result)
        elif isinstance(target, list):
            for each, piece in zip(target, result, strict=True):
                each.copy_(piece)


def place(gpu: GPU, result: Any) -> Any:
    """Puts a result that is known already into device memory, on the current stream."""
    if isinstance(result, (list, tuple)):
        return type(result)([place(gpu, r) for r in result])
    if not isinstance(result, torch.Tensor):
        return result
    tensor = allocate(gpu, (tuple(result.shape), result.stride(), result.dtype))

    def run(work: Work) -> None:
        with internals():
            tensor_real.copy_(result)

    tensor_real = tensor.raw
    gpu.op("store", run, tensor.access(False, True))
    return tensor


def fit_outputs(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outs: list[str]) -> None:
    """``out=`` tensors take the shape of the result (factories come through here with size 0)."""
    given = [kwargs[n] for n in outs if kwargs.get(n) is not None]
    with internals():
        metas = [to_meta(t) for t in given]
        try:
            func(
                *to_meta(args),
                **{k: to_meta(v) for k, v in kwargs.items() if k not in outs},
                **dict(zip([n for n in outs if kwargs.get(n) is not None], metas, strict=True)),
            )
        except Exception:
            metas = [to_sample(t) for t in given]
            rest = {k: v for k, v in kwargs.items() if k not in outs}
            on_samples(func, args, {**rest, **dict(zip(outs, metas, strict=False))})
    for tensor, meta in zip(given, metas, strict=True):
        if tuple(tensor.shape) != tuple(meta.shape):
            resize(tensor, tuple(meta.shape), meta.stride())


def resize(tensor: DeviceTensor, shape: tuple[int, ...], strides: tuple[int, ...]) -> None:
    """Gives a tensor another shape; a block that is too small is exchanged, bytes kept.

    Torch keeps the old bytes with a device copy on the current stream when a storage grows.
    """
    g = gpu()
    last = sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    need = 0 if 0 in shape else 1 + last
    offset = tensor.raw.storage_offset()
    old = tensor.block
    item = tensor.raw.element_size()
    if (need + offset) * item <= old.nbytes and not old.dead:
        real = tensor.raw.as_strided(shape, strides, offset)
        adopt(tensor, device_tensor(real, old))
        return
    fresh = allocate(g, ((need,), (1,), tensor.raw.dtype))
    keep = min(old.nbytes, need * item) if not old.dead else 0
    if keep:
        source = device_tensor(old.view(torch.uint8, keep), old)
        target = device_tensor(fresh.block.view(torch.uint8, keep), fresh.block)
        aten.copy_.default(target, source)
    real = fresh.raw.as_strided(shape, strides, 0)
    adopt(tensor, device_tensor(real, fresh.block))


def adopt(tensor: VirtualTensor, other: VirtualTensor) -> None:
    """``tensor`` becomes ``other``: C++ metadata, bytes and block; its identity stays."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        torch._C.TensorBase.data.__set__(tensor, other)  # type: ignore[attr-defined]
    tensor.raw, tensor.block, tensor.meta = other.raw, other.block, other.meta
    tensor.__dict__.pop("_accesses", None)
