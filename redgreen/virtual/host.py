"""The host's side of operators: those on pinned memory, and values that the host waits for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..trace import Access
from . import access_rules
from .gpu import GPU
from .tensor import VirtualTensor
from .unwrapping import internals, tensors, unwrap
from .work import Work

aten = torch.ops.aten


def accesses_of(
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
            accesses = accesses_of(found, flat, access_rules.overwrites(func))
        if accesses:
            gpu.machine.host_access(f"host {func}", accesses)
    real, named = unwrap(args), unwrap(kwargs)
    with torch._C._DisableTorchDispatch():
        result = func(*real, **named)
    if not written:
        return result
    return written[0] if len(written) == 1 else tuple(written)


def host_value(gpu: GPU, name: str, reads: tuple[Access, ...], compute: Callable[[], Any]) -> Any:
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
