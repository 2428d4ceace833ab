"""Copies between host and device, conversions, scalars, storage changes: the special operators.

CUDA's rules (API synchronization behavior; CUDAStream notes; ATen/native/cuda/Copy.cu):

* Without ``non_blocking`` a copy between host and device waits for its stream.
* From pinned memory with ``non_blocking`` the source is read when the copy executes.
* From pageable memory the source is consumed before the call returns; the device write may still
  be pending.
* To pageable memory the call returns when the copy is complete; to pinned memory at once.
* A copy that needs a temporary (strided host source, dtype conversion) goes as Copy.cu does it.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.utils import deterministic

from .dispatch import aten, dispatch, special
from .escapes import watch
from .gpu import BACKEND, GPU
from .host import host_operator, host_value
from .metadata import check_overlap
from .outputs import adopt, allocate, resize
from .tensor import DeviceTensor, PinnedTensor, VirtualTensor, device_tensor, pinned_tensor
from .unwrapping import internals, unwrap
from .work import Work

CPU = torch.device("cpu")
STAGED = 64 << 10  # bytes; smaller pageable sources are taken at once (cudaMemcpyAsync)


def is_device(device: torch.device | None) -> bool:
    return device is not None and device.type in (BACKEND, "cuda")


def copy(gpu: GPU, dst: torch.Tensor, src: torch.Tensor, non_blocking: bool) -> torch.Tensor:
    """``dst.copy_(src, non_blocking)`` for any pair of host and device tensors."""
    if dst.numel() == 0:
        return dst
    check_overlap(dst)
    if isinstance(dst, DeviceTensor) and isinstance(src, DeviceTensor):
        return _kernel(gpu, dst, src)
    if not (isinstance(dst, DeviceTensor) or isinstance(src, DeviceTensor)):
        host_operator(gpu, aten.copy_.default, (dst, src), {}, [dst, src])
        return dst
    if not _direct(dst, src):
        return _through_temporaries(gpu, dst, src, non_blocking)
    if isinstance(dst, DeviceTensor):
        return _upload(gpu, dst, src, non_blocking)
    assert isinstance(src, DeviceTensor)
    return _download(gpu, dst, src, non_blocking)


def _direct(dst: torch.Tensor, src: torch.Tensor) -> bool:
    """One memcpy does it: same dtype and shape, both dense in the same order."""
    if dst.dtype != src.dtype or dst.shape != src.shape:
        return False
    if dst.is_contiguous() and src.is_contiguous():
        return True
    return dst.stride() == src.stride() and dense(src)


def dense(t: torch.Tensor) -> bool:
    expected = 1
    for stride, size in sorted(zip(t.stride(), t.shape, strict=True)):
        if size == 1:
            continue
        if stride != expected:
            return False
        expected *= size
    return True


def _through_temporaries(
    gpu: GPU, dst: torch.Tensor, src: torch.Tensor, non_blocking: bool
) -> torch.Tensor:
    """Copy.cu, copy_requires_temporaries: converts on the device if non_blocking."""
    convert_on_source = isinstance(src, DeviceTensor) == non_blocking
    if convert_on_source:
        middle = dst if dst.is_contiguous() else _empty_like(dst, dst.dtype)
        ready = src.to(dst.dtype).expand(dst.shape).contiguous()
    else:
        same = dst.dtype == src.dtype
        middle = dst if dst.is_contiguous() and same else _empty_like(dst, src.dtype)
        ready = src.expand(dst.shape).contiguous()
    copy(gpu, middle, ready, non_blocking)
    if middle is not dst:
        copy(gpu, dst, middle, non_blocking)
    return dst


def _empty_like(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    shape = list(t.shape)
    if isinstance(t, DeviceTensor):
        strides = torch.empty(shape, device="meta").stride()
        return allocate(_gpu(), (tuple(shape), strides, dtype))
    return torch.empty(shape, dtype=dtype)


def _gpu() -> GPU:
    from .gpu import gpu

    return gpu()


def _kernel(gpu: GPU, dst: DeviceTensor, src: DeviceTensor) -> torch.Tensor:
    into, source = dst.raw, src.raw

    def run(work: Work) -> None:
        with internals():
            into.copy_(source)

    gpu.op("aten.copy_", run, dst.access(False, True) + src.access(True, False))
    return dst


def _upload(gpu: GPU, dst: DeviceTensor, src: torch.Tensor, non_blocking: bool) -> torch.Tensor:
    machine, stream = gpu.machine, gpu.current()
    pinned = isinstance(src, PinnedTensor)
    into = dst.raw
    if stream.capture is not None and not (pinned and non_blocking):
        stream.capture.refuse_copy()
    if non_blocking and not pinned and dst.numel() * dst.element_size() > STAGED:
        # The host fills a staging buffer piece by piece, so it waits for what comes before; the
        # last piece may be under way when the call returns.
        gpu.op("staging", None, ())
        machine.drain("staging", (stream.agent,))
    edge, _ = machine.edge("copy") if non_blocking else (-1, False)
    at_execution = pinned if gpu.break_rule != 1 else False
    if at_execution:
        source = src.raw  # type: ignore[attr-defined]
    else:
        with internals():
            source = unwrap(src).clone()

    watched = None
    if isinstance(src, PinnedTensor) and at_execution and stream.capture is None:
        watched = watch(gpu, src, machine.sites.here())

    def run(work: Work) -> None:
        with internals():
            if watched is not None:
                watched()
            into.copy_(source)

    reads = src.access(True, False) if isinstance(src, PinnedTensor) else ()
    if pinned and not at_execution:
        machine.host_access("aten.copy_", reads)
        reads = ()
    gpu.op("aten.copy_", run, dst.access(False, True) + reads)
    if isinstance(src, PinnedTensor) and non_blocking:  # Copy.cu: a blocking copy records nothing
        src.block.recorded.setdefault(stream.agent, set())
    if edge >= 0 and (fault := machine.poison(edge)) is not None:
        _poison(gpu, src, fault)
    if not non_blocking and gpu.break_rule != 2:
        machine.drain("aten.copy_", (stream.agent,))
    return dst


def _poison(gpu: GPU, src: torch.Tensor, fault: Any) -> None:
    """The host overwrites the source right after the copy was enqueued: every byte changes."""
    if isinstance(src, VirtualTensor):
        gpu.machine.host_access("poison", src.access(False, True))
    with internals():
        flat = unwrap(src).view(torch.uint8) if src.dim() else unwrap(src).view(1).view(torch.uint8)
        flat.bitwise_xor_(0x5A)
        gpu.machine.changed[fault] = gpu.machine.changed.get(fault, 0) + flat.numel()


def _download(gpu: GPU, dst: torch.Tensor, src: DeviceTensor, non_blocking: bool) -> torch.Tensor:
    stream = gpu.current()
    into, source = unwrap(dst), src.raw
    pinned = isinstance(dst, PinnedTensor)
    if not pinned or (not non_blocking and gpu.break_rule != 2):
        if stream.capture is not None and not (pinned and non_blocking):
            stream.capture.refuse_copy()
        reads = src.access(True, False)
        if isinstance(dst, PinnedTensor):
            reads += dst.access(False, True)
        host_value(gpu, "aten.copy_", reads, lambda: into.copy_(source))
        return dst

    def run(work: Work) -> None:
        with internals():
            into.copy_(source)

    gpu.op("aten.copy_", run, src.access(True, False) + dst.access(False, True))  # type: ignore[attr-defined]
    dst.block.recorded.setdefault(stream.agent, set())  # type: ignore[attr-defined]
    return dst


@special(aten.copy_.default)
def _copy_(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    dst, src = args[:2]
    non_blocking = args[2] if len(args) > 2 else kwargs.get("non_blocking", False)
    if src.shape != dst.shape:
        src = src.expand(dst.shape)
    return copy(gpu, dst, src, bool(non_blocking))


def copy_from(src: torch.Tensor, dst: torch.Tensor, non_blocking: bool = False) -> torch.Tensor:
    """``aten::_copy_from``: where C++ copies with Python dispatch switched off."""
    return copy(_gpu(), dst, src, non_blocking)


@special(aten._to_copy.default)
def _to_copy(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    src: torch.Tensor = args[0]
    dtype = kwargs.get("dtype") or src.dtype
    device = kwargs.get("device")
    on_device = isinstance(src, DeviceTensor) if device is None else is_device(device)
    non_blocking = bool(kwargs.get("non_blocking"))
    strides = _result_strides(src, kwargs.get("memory_format"))
    shape = tuple(src.shape)
    if on_device:
        out: torch.Tensor = allocate(gpu, (shape, strides, dtype))
    elif isinstance(src, DeviceTensor) and (non_blocking or kwargs.get("pin_memory")):
        out = new_pinned(gpu, shape, strides, dtype)
    elif device is not None and device.type != "cpu":
        return func(unwrap(src), **kwargs)  # meta and the like
    else:
        out = aten.empty_strided.default(list(shape), list(strides), dtype=dtype)
    return copy(gpu, out, src, non_blocking)


def _result_strides(src: torch.Tensor, format: torch.memory_format | None) -> tuple[int, ...]:
    meta = aten.empty_strided.default(
        list(src.shape), list(src.stride()), dtype=src.dtype, device="meta"
    )
    return aten.empty_like.default(meta, memory_format=format or torch.preserve_format).stride()  # type: ignore[no-any-return]


def new_pinned(
    gpu: GPU, shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype
) -> torch.Tensor:
    """A fresh pinned host tensor."""
    site = gpu.machine.sites.here()
    if gpu.mutations is not None and gpu.mutations.unpins(site):
        pageable = aten.empty_strided.default(list(shape), list(strides), dtype=dtype)
        return pageable.zero_()  # type: ignore[no-any-return]
    count = 0 if 0 in shape else 1 + sum((n - 1) * s for n, s in zip(shape, strides, strict=True))
    nbytes = count * dtype.itemsize
    block = gpu.memory.pinned.allocate(nbytes, -1, site)
    with torch._C.DisableTorchFunction():
        real = block.view(dtype, nbytes).as_strided(shape, strides)
    return pinned_tensor(real, block)


def pin(gpu: GPU, src: torch.Tensor) -> torch.Tensor:
    """``Tensor.pin_memory``: a pinned copy of a host tensor."""
    if isinstance(src, PinnedTensor):
        return src
    if isinstance(src, DeviceTensor):
        raise RuntimeError(f"cannot pin '{_legacy_type(src)}' only dense CPU tensors can be pinned")
    strides = torch.empty_like(src, device="meta", memory_format=torch.contiguous_format).stride()
    out = new_pinned(gpu, tuple(src.shape), strides, src.dtype)
    if isinstance(out, PinnedTensor):
        gpu.machine.host_access("pin_memory", out.access(False, True))
    with internals():
        unwrap(out).copy_(src)
    return out


def _legacy_type(t: torch.Tensor) -> str:
    names = {torch.float32: "Float", torch.int64: "Long", torch.float16: "Half",
             torch.float64: "Double", torch.int32: "Int", torch.bool: "Bool"}
    return f"torch.cuda.{names.get(t.dtype, str(t.dtype).removeprefix('torch.'))}Tensor"


@special(aten._pin_memory.default, aten.pin_memory.default)
def _pin(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return pin(gpu, args[0])


@special(aten.is_pinned.default)
def _is_pinned(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return isinstance(args[0], PinnedTensor)


@special(aten._local_scalar_dense.default)
def _item(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    src = args[0]
    if not isinstance(src, DeviceTensor):
        return host_operator(gpu, func, args, kwargs, [src])
    gpu.forbid_in_capture("item")
    real = src.raw
    return host_value(gpu, "item", src.access(True, False), lambda: func(real))


@special(aten._linalg_check_errors.default)
def _check_errors(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """The host reads what the factorisation said, and raises at the call."""
    info = args[0]
    if isinstance(info, DeviceTensor):
        gpu.forbid_in_capture(str(func))
        real = info.raw
        info = host_value(gpu, str(func), info.access(True, False), lambda: real.clone())
    return func(info, *args[1:], **kwargs)


@special(
    aten.empty_like.default, aten.new_empty.default, aten.new_empty_strided.default,
    aten.empty.memory_format, aten.empty_strided.default,
)  # fmt: skip
def _empty(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Allocation without a kernel."""
    device = kwargs.get("device")
    src = args[0] if isinstance(args[0], torch.Tensor) else None
    on_device = isinstance(src, DeviceTensor) if device is None else is_device(device)
    rest = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")}
    if not on_device:
        if device is None or device.type == "cpu":
            made = _meta(func, args, rest)
            if kwargs.get("pin_memory"):
                return new_pinned(gpu, tuple(made.shape), made.stride(), made.dtype)
            shape, strides = list(made.shape), list(made.stride())
            return aten.empty_strided.default(shape, strides, dtype=made.dtype)
        return func(*unwrap(args), **kwargs)
    made = _meta(func, args, rest)
    out = allocate(gpu, (tuple(made.shape), made.stride(), made.dtype))
    if torch.are_deterministic_algorithms_enabled():
        fill_in_deterministic_mode(gpu, out)
    return out


def fill_in_deterministic_mode(gpu: GPU, tensor: DeviceTensor) -> None:
    """``at::empty`` launches a fill then (fill_empty_deterministic_)."""
    if not deterministic.fill_uninitialized_memory or not tensor.numel():  # type: ignore[attr-defined]
        return
    dtype = tensor.dtype
    if dtype.is_floating_point or dtype.is_complex:
        filling: float | bool = float("nan")
    else:
        filling = True if dtype is torch.bool else torch.iinfo(dtype).max
    real = tensor.raw

    def run(work: Work) -> None:
        with internals():
            real.fill_(filling)

    gpu.op("aten.fill_", run, tensor.access(False, True))


def _meta(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> torch.Tensor:
    head = args[0]
    if isinstance(head, torch.Tensor):
        head = aten.empty_strided.default(
            list(head.shape), list(head.stride()), dtype=head.dtype, device="meta"
        )
    with internals():
        return func(head, *args[1:], **kwargs, device=torch.device("meta"))  # type: ignore[no-any-return]


@special(aten.resize_.default)
def _resize_(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor, shape = args[0], tuple(args[1])
    if isinstance(tensor, DeviceTensor):
        strides: list[int] = []
        step = 1
        for size in reversed(shape):
            strides.insert(0, step)
            step *= max(size, 1)
        resize(tensor, shape, tuple(strides))
        return tensor
    return host_operator(gpu, func, args, kwargs, [tensor])


@special(aten.resize_as_.default)
def _resize_as_(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return dispatch(aten.resize_.default, (args[0], list(args[1].shape)), {})


@special(
    aten.set_.source_Tensor, aten.set_.source_Storage, aten.set_.source_Storage_storage_offset,
    aten.set_.default,
)  # fmt: skip
def _set_(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    tensor = args[0]
    if isinstance(tensor, DeviceTensor) and len(args) > 1 and isinstance(args[1], DeviceTensor):
        source = args[1]
        adopt(tensor, device_tensor(source.raw, source.block))
        return tensor
    if isinstance(tensor, DeviceTensor) and len(args) == 1:
        adopt(tensor, allocate(gpu, ((0,), (1,), tensor.dtype)))
        return tensor
    return dispatch_host_set(gpu, func, args, kwargs)


def dispatch_host_set(
    gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    return host_operator(gpu, func, args, kwargs, [a for a in args if isinstance(a, torch.Tensor)])


__all__ = ["copy", "copy_from", "dispatch", "new_pinned", "pin"]
