"""Sees every operator of a host thread, below autograd, and makes steps of them.

A plan is chosen once per operator, as on the virtual GPU: composite operators are taken apart,
factories as well (what they are made of is what has a kernel), views are no steps, copies and
scalars have rules of their own, and the rest is a kernel or an access to pinned memory.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from ..virtual import access_rules
from ..virtual.dispatch import SILENT_VIEWS
from .blocks import storage_of
from .copies import copy
from .operators import Operator, new_memory, prepare_indices, tensors
from .session import Session

aten = torch.ops.aten
_KEYS = torch._C.DispatchKey
_has_kernel = torch._C._dispatch_has_kernel_for_dispatch_key
Plan = Callable[["Recorder", Any, tuple[Any, ...], dict[str, Any]], Any]
_plans: dict[Any, Plan] = {}
_special: dict[Any, Plan] = {}


class Recorder(TorchDispatchMode):
    """One per host thread: torch keeps the stack of modes per thread."""

    def __init__(self, session: Session) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.session = session
        self.inside = 0  # a conversion of torch's, which allocates what it returns

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self.session.closed:
            return func(*args, **kwargs)
        plan = _plans.get(func)
        if plan is None:
            plan = _plans[func] = _choose(func)
        return plan(self, func, args, kwargs)


def special(*overloads: Any) -> Callable[[Plan], Plan]:
    def register(plan: Plan) -> Plan:
        _special.update(dict.fromkeys(overloads, plan))
        return plan

    return register


def _choose(func: Any) -> Plan:
    plan = _special.get(func)
    if plan is not None:
        return plan
    schema = func._schema
    implicit = _has_kernel(func.name(), "CompositeImplicitAutograd")
    if implicit and func.namespace == "aten" and not _has_kernel(func.name(), "CPU"):
        return _composite
    if torch.Tag.inplace_view in func.tags or _is_view(schema):
        return _as_is
    operator = Operator(func)
    takes_tensors = any("Tensor" in str(a.type) for a in schema.arguments)
    explicit = _has_kernel(func.name(), "CompositeExplicitAutograd")

    def plan_of(mode: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        s = mode.session
        found = tensors(args, kwargs)
        kind = s.driver.device_type
        if kwargs.get("pin_memory"):
            return _pinned(s, func, args, kwargs)
        device = kwargs.get("device")
        on_device = any(t.device.type == kind for t in found)
        if not on_device and not (device is not None and device.type == kind):
            return operator.on_host(s, args, kwargs, found)
        if device is not None and device.type == "cpu":
            return func(*args, **kwargs)  # new_zeros(device="cpu")
        if not takes_tensors and explicit:
            with mode:
                return func._op_dk(_KEYS.CompositeExplicitAutograd, *args, **kwargs)
        if access_rules.takes_indices(func):
            with mode:
                args = prepare_indices(args, kwargs, func)
            found = tensors(args, kwargs)
        return operator.on_device(s, args, kwargs, found)

    return plan_of


def _is_view(schema: Any) -> bool:
    if schema.name in SILENT_VIEWS and not any(a.is_out for a in schema.arguments):
        return True
    writes = any(a.alias_info is not None and a.alias_info.is_write for a in schema.arguments)
    return not writes and any(r.alias_info is not None for r in schema.returns)


def _composite(mode: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    with mode:
        return func._op_dk(_KEYS.CompositeImplicitAutograd, *args, **kwargs)


def _as_is(mode: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return func(*args, **kwargs)


def _pinned(s: Session, func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    """A factory of pinned memory; its content is the host's write."""
    made = _pinned_memory(s, func, args, kwargs)
    if accesses := s.blocks.access(made, False, True):
        s.machine.host_access("pin_memory", accesses)
    return made


def _pinned_memory(s: Session, func: Any, args: Any, kwargs: dict[str, Any]) -> torch.Tensor:
    site = s.machine.sites.here()
    if s.blocks.pending:
        rest = {k: v for k, v in kwargs.items() if k not in ("device", "pin_memory")}
        like = [a.to("meta") if isinstance(a, torch.Tensor) else a for a in args]
        shape = func(*like, **rest, device=torch.device("meta"))
        s.blocks.before_allocation(storage_of(shape).nbytes(), True, -1)
    made = s.driver.pinned(func, args, kwargs)
    if storage_of(made).nbytes() and s.blocks.of(made) is None:
        s.blocks.add(made, True, site, -1)
    return made


# -- operators with rules of their own -------------------------------------------------------------


@special(aten.copy_.default)
def _copy_(mode: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    dst, src = args[:2]
    s, kind = mode.session, mode.session.driver.device_type
    if kind not in (dst.device.type, src.device.type):
        return _copy_on_host.on_host(s, args, kwargs, [dst, src])
    if dst.numel() == 0:
        return func(*args, **kwargs)
    non_blocking = bool(args[2] if len(args) > 2 else kwargs.get("non_blocking", False))
    if dst.device.type == kind and src.device.type == "cpu":
        _meet(s, src)
    elif dst.device.type == "cpu":
        _meet(s, dst)
    if src.shape != dst.shape:
        src = src.expand(dst.shape)
    return copy(s, dst, src, non_blocking, lambda: mode)


_copy_on_host = Operator(aten.copy_.default)


def _meet(s: Session, host: torch.Tensor) -> None:
    """Pinned memory that nobody saw being made: what the host did with it until now is unknown."""
    if s.blocks.of(host) is None and host.is_pinned():
        site = s.machine.sites.here()
        s.blocks.add(host, True, site, -1)
        where = s.machine.sites.sites[site]
        s.machine.trace.escapes.append(
            f"pinned {storage_of(host).nbytes()} B made unseen, used at "
            f"{where.file}:{where.line}")


@special(aten._to_copy.default)
def _to_copy(mode: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """An empty tensor and a copy, as its composite kernel has it."""
    kind = mode.session.driver.device_type
    device = kwargs.get("device")
    if kind not in (args[0].device.type, device.type if device is not None else ""):
        return _to_copy_on_host.on_host(mode.session, args, kwargs, [args[0]])
    mode.inside += 1
    try:
        with mode:
            return func._op_dk(_KEYS.CompositeExplicitAutograd, *args, **kwargs)
    finally:
        mode.inside -= 1


_to_copy_on_host = Operator(aten._to_copy.default)


@special(aten._pin_memory.default)
def _pin(mode: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    return _pinned(mode.session, func, args, kwargs)


@special(aten._local_scalar_dense.default)
def _item(mode: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    s, src = mode.session, args[0]
    if src.device.type != s.driver.device_type:
        return _item_on_host.on_host(s, args, kwargs, [src])
    if s.current().capture is not None:
        return func(src)  # torch refuses it
    return s.synchronous("item", lambda: s.driver.scalar(src), s.blocks.access(src, True, False))


_item_on_host = Operator(aten._local_scalar_dense.default)


@special(
    aten.empty_like.default, aten.new_empty.default, aten.new_empty_strided.default,
    aten.empty.memory_format, aten.empty_strided.default,
)  # fmt: skip
def _empty(mode: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """Allocation without a kernel."""
    s = mode.session
    if kwargs.get("pin_memory"):
        return (_pinned_memory if mode.inside else _pinned)(s, func, args, kwargs)
    device = kwargs.get("device") or (
        args[0].device if isinstance(args[0], torch.Tensor) else torch.device("cpu"))
    if device.type != s.driver.device_type:
        return func(*args, **kwargs)
    if s.blocks.pending:
        like = tuple(a.to("meta") if isinstance(a, torch.Tensor) else a for a in args)
        shape = func(*like, **{**kwargs, "device": torch.device("meta")})
        s.blocks.before_allocation(storage_of(shape).nbytes(), False, s.current().agent)
    made = s.calling(str(func), lambda: func(*args, **kwargs))
    new_memory(s, made, s.machine.sites.here())
    return made


@special(aten.record_stream.default, aten.is_pinned.default, aten.resize_.default,
         aten.set_.source_Storage_storage_offset, aten.set_.source_Tensor,
         aten.set_.source_Storage, aten.set_.default)  # fmt: skip
def _metadata(mode: Recorder, func: Any, args: Any, kwargs: dict[str, Any]) -> Any:
    """No kernel; where the bytes lie is looked up at the next use."""
    s = mode.session
    made = s.calling(str(func), lambda: func(*args, **kwargs))
    if isinstance(made, torch.Tensor):
        new_memory(s, made, s.machine.sites.here())
    return made
