"""What an ordinary operator does on the real device, by its schema; and operators on host memory.

The schema says what is written; everything else is read, whole tensors: what an index picks is in
device memory and is not looked at, so two accesses to disjoint rows count as a conflict here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from ..trace import Access
from ..virtual import access_rules
from ..virtual.operators import DYNAMIC
from .blocks import storage_of
from .session import Session

aten = torch.ops.aten


def tensors(*values: Any) -> list[torch.Tensor]:
    """All tensors in there, in order."""
    return [t for t in pytree.tree_leaves(values) if isinstance(t, torch.Tensor)]


class Operator:
    """One operator: its name and what the schema and the access rules say."""

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.func, self.name = func, str(func)
        self._arguments = [
            (i, a.name) for i, a in enumerate(schema.arguments)
            if a.alias_info is not None and a.alias_info.is_write
        ]  # fmt: skip
        self._dynamic = bool(DYNAMIC & set(func.tags))
        self._undeclared = access_rules.undeclared_writes(func)
        self._overwrites = access_rules.overwrites(func)
        self._reads = access_rules.reads(func)
        self._quiet = func.name().startswith("aten::is_")

    def written(self, args: Any, kwargs: Any) -> list[torch.Tensor]:
        named = [args[i] if i < len(args) else kwargs.get(n) for i, n in self._arguments]
        also = self._undeclared(args, kwargs) if self._undeclared else []
        return tensors(named, also)

    def on_device(self, s: Session, args: Any, kwargs: Any, found: list[torch.Tensor]) -> Any:
        """A kernel on the current stream."""
        for t in found:
            if t.device.type == "cpu" and (pinned := s.blocks.access(t, True, False)):
                s.host_access(f"host {self.name}", pinned)  # a scalar, taken at the call
        if self._dynamic and access_rules.shape_from_data(self.func, args, kwargs):
            return self._synchronous(s, args, kwargs, found)
        written = self.written(args, kwargs)
        before = self._touched(s, found, written)
        if s.blocks.pending:
            self._ask(s, args, kwargs)
        where = s.machine.sites.here()

        def accesses(result: Any) -> tuple[Access, ...]:
            fresh = new_memory(s, result, where)
            return before + tuple(a for t in fresh for a in s.blocks.access(t, False, True))

        return s.launch(self.name, lambda: self.func(*args, **kwargs), accesses, where)

    def _touched(
        self, s: Session, found: Sequence[torch.Tensor], written: Sequence[torch.Tensor]
    ) -> tuple[Access, ...]:
        """What it does to its arguments in device memory."""
        result: tuple[Access, ...] = ()
        for t in written:
            result += s.blocks.access(t, not self._overwrites, True)
        for t in found if self._reads else ():
            if t.device.type != "cpu" and not any(t is w for w in written):
                result += s.blocks.access(t, True, False)
        return result

    def _ask(self, s: Session, args: Any, kwargs: Any) -> None:
        """Blocks that wait for other streams may be taken by what this returns."""
        try:
            made = self.func(*to_meta(args), **to_meta(kwargs))
        except Exception:  # whatever it is, the call itself says so; where it lands is looked at
            return
        if self.written(args, kwargs):
            return
        for t in tensors(made):
            s.blocks.before_allocation(storage_of(t).nbytes(), False, s.current().agent)

    def _synchronous(
        self, s: Session, args: Any, kwargs: Any, found: Sequence[torch.Tensor]
    ) -> Any:
        """The shape of the output depends on data: it waits for its stream."""
        reads = self._touched(s, found, ())
        result = s.synchronous(self.name, lambda: self.func(*args, **kwargs), reads)
        for t in new_memory(s, result, s.machine.sites.here()):
            accesses = s.blocks.access(t, False, True)
            s.launch("store", lambda: None, lambda _, a=accesses: a)  # type: ignore[misc]
        return result

    def on_host(self, s: Session, args: Any, kwargs: Any, found: list[torch.Tensor]) -> Any:
        """At once; a host access if pinned memory takes part."""
        written = self.written(args, kwargs)
        accesses: tuple[Access, ...] = ()
        for t in written:
            accesses += s.blocks.access(t, not self._overwrites, True)
        for t in found if self._reads else ():
            if not any(t is w for w in written):
                accesses += s.blocks.access(t, True, False)
        if accesses and not self._quiet:
            s.host_access(f"host {self.func}", accesses)
        return self.func(*args, **kwargs)


def to_meta(value: Any) -> Any:
    """The same arguments without bytes."""

    def one(v: Any) -> Any:
        if isinstance(v, torch.Tensor):
            return torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="meta")
        return torch.device("meta") if isinstance(v, torch.device) else v

    return pytree.tree_map(one, value)


def new_memory(s: Session, result: Any, site: int) -> list[torch.Tensor]:
    """The tensors of a result that lie in device memory that is new to us; they are known then."""
    fresh = []
    for t in tensors(result):
        if t.device.type == s.driver.device_type and s.blocks.of(t) is None:
            stream = s.current()
            s.blocks.add(t, False, site, stream.agent, captured=stream.capture is not None)
            fresh.append(t)
    return fresh


def prepare_indices(args: tuple[Any, ...], kwargs: dict[str, Any], func: Any) -> tuple[Any, ...]:
    """Indices as the kernels take them, made by steps of their own (TensorAdvancedIndexing).

    Masks become indices by ``nonzero``, which waits; host indices go up by a blocking copy.
    """
    indices = args[1]
    if any(access_rules.is_mask(i) for i in indices) and not access_rules.fills(
        func, args, kwargs
    ):
        indices = access_rules.without_masks(args[0], indices)
    device = args[0].device
    indices = [
        aten._to_copy.default(i, device=device)
        if isinstance(i, torch.Tensor) and i.device.type == "cpu" else i
        for i in indices
    ]  # fmt: skip
    return (args[0], indices, *args[2:])
