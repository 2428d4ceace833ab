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

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..trace import Access
from . import access_rules
from .gpu import GPU, gpu
from .metadata import (
    cannot_run,
    check_arguments,
    check_overlap,
    on_samples,
    result_metas,
    to_meta,
    to_sample,
)
from .random import Draw
from .tensor import (
    CUDA,
    DeviceTensor,
    Meta,
    PinnedTensor,
    VirtualTensor,
    device_tensor,
    pinned_tensor,
)
from .unwrapping import internals, tensors, unwrap
from .work import Work

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
    if schema.name in _SILENT_VIEWS and not any(a.is_out for a in schema.arguments):
        return _view
    aliases = [a.alias_info for a in schema.arguments]
    if not any(a is not None and a.is_write for a in aliases) and any(
        r.alias_info is not None for r in schema.returns
    ):
        return _view
    return _operator(func)


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
            return device_tensor(real, like.block)
        return pinned_tensor(real, like.block)
    if isinstance(real, (list, tuple)):
        return type(real)(rewrap(r, like) for r in real)
    return real


# Views by implementation, on the CPU and on CUDA, though their schemas do not say so.
_SILENT_VIEWS = {
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


# -- device operators ------------------------------------------------------------------------------


def allocate(gpu: GPU, meta: Meta, site: int | None = None) -> DeviceTensor:
    """A new device tensor on the current stream."""
    shape, strides, dtype = meta
    count = 1
    for size, stride in zip(shape, strides, strict=True):
        if size == 0:
            count = 0
            break
        count += (size - 1) * stride
    nbytes = count * dtype.itemsize
    where = gpu.machine.sites.here() if site is None else site
    stream = gpu.current()
    block = gpu.heap().allocate(nbytes, stream.agent, where)
    block.captured = stream.capture is not None
    flat = block.view(dtype, nbytes)
    return device_tensor(torch._C._VariableFunctions.as_strided(flat, shape, strides), block, meta)


def _allocate_all(gpu: GPU, metas: Any, site: int) -> Any:
    if metas is None:
        return None
    if isinstance(metas, list):
        return [_allocate_all(gpu, m, site) for m in metas]
    if len(metas) == 1:
        return metas[0]  # a number, not a tensor
    return allocate(gpu, metas, site)


def _store(into: list[Any], results: Any) -> None:
    """Puts results into their blocks, where the operator could not write there itself."""
    for target, result in zip(into, results, strict=True):
        if isinstance(target, torch.Tensor):
            if result.numel():  # in evaluation the CPU's batch norm returns no statistics
                target.copy_(result)
        elif isinstance(target, list):
            for each, piece in zip(target, result, strict=True):
                each.copy_(piece)


def check_devices(name: str, found: Sequence[torch.Tensor]) -> None:
    """A kernel takes device tensors and host scalars; CUDA's error for anything else."""
    for t in found:
        if not isinstance(t, DeviceTensor) and t.dim() > 0:
            raise RuntimeError(_MIXED.format(t.device, name))


_MIXED = (
    "Expected all tensors to be on the same device, but found at least two devices, "
    "cuda:0 and {}! (when checking argument in method {})"
)


def _take_scalars(gpu: GPU, name: str, value: Any) -> Any:
    """Host scalars go into a launch by value: the host reads them at the call."""
    if isinstance(value, DeviceTensor):
        return value
    if isinstance(value, torch.Tensor):
        if isinstance(value, PinnedTensor):
            gpu.machine.host_access(f"host {name}", value.access(True, False))
        with internals():
            return unwrap(value).clone()
    if isinstance(value, dict):
        return {k: _take_scalars(gpu, name, v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([_take_scalars(gpu, name, v) for v in value])
    return value


def _out_variant(func: Any) -> Any:
    """The overload that writes into given tensors, if func has one with the same arguments."""
    want = [(a.name, str(a.type)) for a in func._schema.arguments]
    packet = func.overloadpacket
    for name in packet.overloads():
        candidate = getattr(packet, name)
        rest = [(a.name, str(a.type)) for a in candidate._schema.arguments if not a.is_out]
        outs = [a.name for a in candidate._schema.arguments if a.is_out]
        if outs and rest == want and len(outs) == len(func._schema.returns):
            return candidate, outs
    return None


def _operator(func: Any) -> Plan:
    """The plan of an ordinary operator."""
    schema = func._schema
    written = [
        (i, a.name)
        for i, a in enumerate(schema.arguments)
        if a.alias_info is not None and a.is_out is False and a.alias_info.is_write
    ]
    outs = [a.name for a in schema.arguments if a.is_out]
    name = str(func)
    tags = set(func.tags)
    random = torch.Tag.nondeterministic_seeded in tags
    dynamic = bool(tags & {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output})
    rule = access_rules.find(func)
    undeclared = access_rules.undeclared_writes(func)
    # Some operators write arguments and return new tensors (running statistics, rrelu's noise).
    returns_new = any(r.alias_info is None for r in schema.returns)
    overwrites = access_rules.overwrites(func)
    reads = access_rules.reads(func)
    # Losses with a reduction put the unreduced loss into their output first; FFTs restride it.
    scratch = any(a.name == "reduction" for a in schema.arguments) or "._fft_" in name
    lists = any("List" in str(r.type) for r in schema.returns)
    indexing = access_rules.takes_indices(func)
    no_variant = bool(written or outs or random or scratch or lists)
    variant = None if no_variant else _out_variant(func)

    def plan(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        found = tensors(args, [])
        if kwargs:
            tensors(kwargs.values(), found)
        if not any(isinstance(t, DeviceTensor) for t in found):
            device = kwargs.get("device")
            if device is None or device.type == "cpu":
                return host_operator(gpu, func, args, kwargs, found)
        elif (device := kwargs.get("device")) is not None and device.type == "cpu":
            return func(*to_sample(args), **kwargs)  # new_zeros(device="cpu")
        if indexing:
            args = access_rules.prepare_indices(func, args, kwargs)
            found = tensors(kwargs.values(), tensors(args, []))
        if any(not isinstance(t, DeviceTensor) for t in found):
            if gpu.break_rule != 12:
                check_devices(name, found)
            args, kwargs = _take_scalars(gpu, name, args), _take_scalars(gpu, name, kwargs)
            found = tensors(kwargs.values(), tensors(args, []))
        if dynamic and access_rules.shape_from_data(func, args, kwargs):
            return _synchronous(gpu, func, args, kwargs, found)
        if outs or (written and not returns_new):
            targets = [args[i] if i < len(args) else kwargs.get(n) for i, n in written]
            targets += [kwargs[n] for n in outs if kwargs.get(n) is not None]
            if outs:
                _fit_outputs(func, args, kwargs, outs)
            if not all(isinstance(t, DeviceTensor) for t in tensors(targets, [])):
                raise RuntimeError(_MIXED.format("cpu", name))
            return _mutate(gpu, func, args, kwargs, found, targets)
        return _compute(gpu, func, args, kwargs, found)

    takes_generator = any(a.name == "generator" for a in schema.arguments)

    def _run(real: tuple[Any, ...], named: dict[str, Any], draw: Draw | None) -> Any:
        if draw is None:
            return func(*real, **named)
        if takes_generator:
            return func(*real, **named, generator=draw.generator())
        with draw.as_default():
            return func(*real, **named)

    def _prepare(
        gpu: GPU, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any], Draw | None]:
        draw = None
        if random:
            kwargs = dict(kwargs)
            draw = gpu.random.draw(kwargs.pop("generator", None), gpu.current().capture)
        return unwrap(args), unwrap(kwargs), draw

    # The closures below must hold raw tensors only: a device tensor in a queue would keep its
    # block alive after the program has dropped it, and hide every use after free.

    def _mutate(
        gpu: GPU, func: Any, args: Any, kwargs: Any, found: list[torch.Tensor], targets: list[Any]
    ) -> Any:
        if not outs:
            check_arguments(func, args, kwargs)
        for t in tensors(targets, []):
            if "index_put" not in name:  # which only warns
                check_overlap(t)
        raw, named, draw = _prepare(gpu, args, kwargs)
        flat = tensors(targets, [])
        refine = rule(args, kwargs, found, flat) if rule is not None else None

        def run(work: Work) -> None:
            with internals():
                if refine is not None:
                    work.accesses = refine()
                _run(raw, named, draw)

        gpu.op(name, run, _accesses(found, flat, overwrites))
        if not schema.returns:
            return None
        returned = [kwargs[n] for n in outs if kwargs.get(n) is not None] or targets
        return returned[0] if len(schema.returns) == 1 else tuple(returned)

    def _compute(gpu: GPU, func: Any, args: Any, kwargs: Any, found: list[torch.Tensor]) -> Any:
        metas = result_metas(func, args, kwargs)
        site = gpu.machine.sites.here()
        results = _allocate_all(gpu, metas, site)
        raw, named, draw = _prepare(gpu, args, kwargs)
        several = isinstance(results, list) and not lists
        flat = tensors(results if several else [results], [])
        also = [args[i] if i < len(args) else kwargs.get(n) for i, n in written]
        if undeclared is not None:
            also += undeclared(args, kwargs)
        accesses = _accesses(found if reads else (), tensors(also, []), False)
        for t in flat:
            accesses += t.access(False, True)  # type: ignore[attr-defined]
        refine = rule(args, kwargs, found, flat) if rule is not None else None
        into = unwrap(results) if several else unwrap([results] if schema.returns else [])
        direct = variant if len(flat) == len(into) else None
        outs_by_name = {} if direct is None else dict(zip(direct[1], into, strict=True))

        def run(work: Work) -> None:
            with internals():
                if refine is not None:
                    work.accesses = refine()
                if direct is not None:
                    direct[0](*raw, **named, **outs_by_name)
                    return
                made = _run(raw, named, draw)
                if schema.returns:
                    _store(into, made if several else [made])

        gpu.op(name, run, accesses, site)
        return tuple(results) if several and len(schema.returns) > 1 else results

    return plan


def _accesses(
    found: Sequence[torch.Tensor], written: Sequence[torch.Tensor], overwrites: bool
) -> tuple[Access, ...]:
    result: tuple[Access, ...] = ()
    for t in written:
        if isinstance(t, VirtualTensor):
            result += t.access(not overwrites, True)
    for t in found:
        if isinstance(t, VirtualTensor) and not any(t is w for w in written):
            result += t.access(True, False)
    return result


def _fit_outputs(
    func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], outs: list[str]
) -> None:
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
        dispatch(aten.copy_.default, (target, source), {})
    real = fresh.raw.as_strided(shape, strides, 0)
    adopt(tensor, device_tensor(real, fresh.block))


def adopt(tensor: VirtualTensor, other: VirtualTensor) -> None:
    """``tensor`` becomes ``other``: C++ metadata, bytes and block; its identity stays."""
    with torch._C._DisableTorchDispatch(), torch.no_grad():
        torch._C.TensorBase.data.__set__(tensor, other)  # type: ignore[attr-defined]
    tensor.raw, tensor.block, tensor.meta = other.raw, other.block, other.meta
    tensor.__dict__.pop("_accesses", None)


def _synchronous(
    gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], found: list[torch.Tensor]
) -> Any:
    """Operators whose output shape depends on data wait for their stream, as on CUDA."""
    gpu.forbid_in_capture(str(func))
    real, named = unwrap(args), unwrap(kwargs)

    def compute() -> Any:
        return func(*real, **named)

    return _place(gpu, host_value(gpu, str(func), _accesses(found, (), False), compute))


def host_value(
    gpu: GPU, name: str, reads: tuple[Access, ...], compute: Callable[[], Any]
) -> Any:
    """A value that the host gets from the device: work on the stream, a wait, a host read."""
    box: list[Any] = []
    wrote, read = gpu.staging()

    def run(work: Work) -> None:
        with internals():
            box.append(compute())

    stream = gpu.current()
    gpu.op(name, run, (*reads, wrote))
    gpu.machine.drain(name, (stream.agent,))
    gpu.machine.host_access(f"host {name}", (read,))
    return box[0]


def _place(gpu: GPU, result: Any) -> Any:
    """Puts a result that is known already into device memory, on the current stream."""
    if isinstance(result, (list, tuple)):
        return type(result)([_place(gpu, r) for r in result])
    if not isinstance(result, torch.Tensor):
        return result
    tensor = allocate(gpu, (tuple(result.shape), result.stride(), result.dtype))

    def run(work: Work) -> None:
        with internals():
            tensor_real.copy_(result)

    tensor_real = tensor.raw
    gpu.op("store", run, tensor.access(False, True))
    return tensor


# -- host operators --------------------------------------------------------------------------------


def host_operator(
    gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], found: list[torch.Tensor]
) -> Any:
    """An operator on pinned memory: a host access, done at once."""
    schema = func._schema
    written: list[Any] = []
    for i, a in enumerate(schema.arguments):
        if a.alias_info is not None and a.alias_info.is_write:
            value = args[i] if i < len(args) and not a.kwarg_only else kwargs.get(a.name)
            if value is not None:
                written.append(value)
    flat = tensors(written, [])
    if not func.name().startswith("aten::is_") and func is not aten.empty_like.default:
        rule = access_rules.find(func)
        refine = rule(args, kwargs, found, flat) if rule is not None else None
        if refine is not None:
            with internals():
                accesses = refine()
        else:
            accesses = _accesses(found, flat, access_rules.overwrites(func))
        if accesses:
            gpu.machine.host_access(f"host {func}", accesses)
    real, named = unwrap(args), unwrap(kwargs)
    with torch._C._DisableTorchDispatch():
        result = func(*real, **named)
    if not written:
        return result
    return written[0] if len(written) == 1 else tuple(written)


__all__ = ["CUDA", "PinnedTensor", "adopt", "allocate", "dispatch", "special"]
