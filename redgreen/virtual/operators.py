"""The plan of an ordinary device operator: its kernel is work on the current stream.

What returns new tensors gets their memory at the call, by metadata; the kernel, whenever it runs,
writes into it. What writes its arguments does so when it runs. Work must hold raw tensors only: a
device tensor in a queue would keep its block alive after the program has dropped it, and hide every
use after free.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from ..trace import Access
from . import access_rules
from .gpu import GPU
from .host import accesses_of, host_operator, host_value
from .metadata import check_arguments, check_overlap, result_metas, to_sample
from .outputs import allocate_all, fit_outputs, place, store
from .random import Draw
from .tensor import DeviceTensor, PinnedTensor
from .unwrapping import Arguments, internals, tensors, unwrap
from .work import Work

Refine = Callable[[], tuple[Access, ...]] | None
DYNAMIC = {torch.Tag.dynamic_output_shape, torch.Tag.data_dependent_output}
_MIXED = (
    "Expected all tensors to be on the same device, but found at least two devices, "
    "cuda:0 and {}! (when checking argument in method {})"
)


class Operator:
    """What the schema and the access rules say about one operator, and its plan."""

    def __init__(self, func: Any) -> None:
        schema = func._schema
        self.func, self.name = func, str(func)
        self.written = [
            (i, a.name)
            for i, a in enumerate(schema.arguments)
            if a.alias_info is not None and a.is_out is False and a.alias_info.is_write
        ]
        self.outs = [a.name for a in schema.arguments if a.is_out]
        self.returns = len(schema.returns)
        # Some write arguments and return new tensors (running statistics, rrelu's noise).
        returns_new = any(r.alias_info is None for r in schema.returns)
        self.mutates = bool(self.outs or (self.written and not returns_new))
        self.lists = any("List" in str(r.type) for r in schema.returns)
        self.random = torch.Tag.nondeterministic_seeded in func.tags
        self.takes_generator = any(a.name == "generator" for a in schema.arguments)
        self.dynamic = bool(DYNAMIC & set(func.tags))
        self.indexing = access_rules.takes_indices(func)
        self.rule = access_rules.find(func)
        self.undeclared = access_rules.undeclared_writes(func)
        self.overwrites = access_rules.overwrites(func)
        self.reads = access_rules.reads(func)
        # Losses with a reduction put the unreduced loss into their output first; FFTs restride it.
        scratch = any(a.name == "reduction" for a in schema.arguments) or "._fft_" in self.name
        no_variant = self.written or self.outs or self.random or scratch or self.lists
        self.variant = None if no_variant else out_variant(func)

    def __call__(self, gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        given = Arguments(args, kwargs)
        if kwargs or not given.on_device:
            device = kwargs.get("device")
            if not given.on_device and (device is None or device.type == "cpu"):
                return host_operator(gpu, func, args, kwargs, given.found)
            if given.on_device and device is not None and device.type == "cpu":
                return func(*to_sample(args), **kwargs)  # new_zeros(device="cpu")
        if self.indexing:
            given = Arguments(access_rules.prepare_indices(func, args, kwargs), kwargs)
        if len(given.found) > given.on_device:
            if gpu.break_rule != 12:
                check_devices(self.name, given.found)
            given = Arguments(
                take_scalars(gpu, self.name, given.args), take_scalars(gpu, self.name, kwargs)
            )
        if self.dynamic and access_rules.shape_from_data(func, given.args, given.kwargs):
            return self._synchronous(gpu, given)
        return self._mutate(gpu, given) if self.mutates else self._compute(gpu, given)

    # -- new tensors -----------------------------------------------------------------------------

    def _compute(self, gpu: GPU, given: Arguments) -> Any:
        """Returns new tensors."""
        metas = result_metas(self.func, given)
        site = gpu.machine.sites.here(4)  # this, the call and `dispatch` are ours
        results = allocate_all(gpu, metas, site)
        draw = self._draw(gpu, given) if self.random else None
        several = type(results) is list and not self.lists
        fresh = results if several else [results] if self.returns else []
        flat = tensors(fresh, [])
        accesses = self._touched(given)
        for t in flat:
            accesses += t.access(False, True)  # type: ignore[attr-defined]
        kernel = self._kernel(given, draw, unwrap(fresh), len(flat), several)
        self._launch(gpu, kernel, accesses, self._rule(given, flat), site)
        return tuple(results) if several and self.returns > 1 else results

    def _touched(self, given: Arguments) -> tuple[Access, ...]:
        """What an operator with new tensors does to its arguments."""
        if not (self.written or self.undeclared):
            return accesses_of(given.found, (), False) if self.reads else ()
        also = self._written(given)
        if self.undeclared is not None:
            also += self.undeclared(given.args, given.kwargs)
        return accesses_of(given.found if self.reads else (), tensors(also, []), False)

    def _kernel(
        self, given: Arguments, draw: Draw | None, into: list[Any], count: int, several: bool
    ) -> Callable[[], object]:
        """What runs: the variant that writes where it is told, else a copy of what was made."""
        raw, named = given.raw, given.named
        if self.variant is not None and count == len(into):
            write, names = self.variant
            named = {**named, **dict(zip(names, into, strict=True))}
            return lambda: write(*raw, **named)

        def make_and_store() -> None:
            made = self._run(raw, named, draw)
            if self.returns:
                store(into, made if several else [made])

        return make_and_store

    # -- tensors that are written ----------------------------------------------------------------

    def _mutate(self, gpu: GPU, given: Arguments) -> Any:
        """Writes its arguments and returns them, or nothing."""
        kwargs = given.kwargs
        named_outs = [kwargs[n] for n in self.outs if kwargs.get(n) is not None]
        targets = [*self._written(given), *named_outs]
        if self.outs:
            fit_outputs(self.func, given.args, kwargs, self.outs)
            given = Arguments(given.args, kwargs)
        flat = tensors(targets, [])
        if any(not isinstance(t, DeviceTensor) for t in flat):
            raise RuntimeError(_MIXED.format("cpu", self.name))
        if not self.outs:
            check_arguments(self.func, given)
        if not self.indexing:  # which only warns
            for t in flat:
                check_overlap(t)
        draw = self._draw(gpu, given) if self.random else None
        raw, named = given.raw, given.named
        accesses = accesses_of(given.found, flat, self.overwrites)
        refine = self._rule(given, flat)
        self._launch(gpu, lambda: self._run(raw, named, draw), accesses, refine)
        if not self.returns:
            return None
        returned = named_outs or targets
        return returned[0] if self.returns == 1 else tuple(returned)

    # -- what both need --------------------------------------------------------------------------

    def _launch(
        self, gpu: GPU, kernel: Callable[[], object], accesses: tuple[Access, ...],
        refine: Refine, site: int | None = None,
    ) -> None:  # fmt: skip
        def run(work: Work) -> None:
            with internals():
                if refine is not None:
                    work.accesses = refine()
                kernel()

        gpu.op(self.name, run, accesses, site)

    def _written(self, given: Arguments) -> list[Any]:
        args, kwargs = given.args, given.kwargs
        return [args[i] if i < len(args) else kwargs.get(n) for i, n in self.written]

    def _rule(self, given: Arguments, written: Sequence[torch.Tensor]) -> Refine:
        if self.rule is None:
            return None
        return self.rule(given.args, given.kwargs, given.found, written)

    def _draw(self, gpu: GPU, given: Arguments) -> Draw | None:
        """Seed and offset, taken at the call."""
        generator = given.named.pop("generator", None)
        return gpu.random.draw(generator, gpu.current().capture)

    def _run(self, raw: tuple[Any, ...], named: dict[str, Any], draw: Draw | None) -> Any:
        if draw is None:
            return self.func(*raw, **named)
        if self.takes_generator:
            return self.func(*raw, **named, generator=draw.generator())
        with draw.as_default():
            return self.func(*raw, **named)

    def _synchronous(self, gpu: GPU, given: Arguments) -> Any:
        """The shape of the output depends on data: it waits for its stream, as on CUDA."""
        gpu.forbid_in_capture(self.name)
        func, raw, named = self.func, given.raw, given.named

        def compute() -> Any:
            return func(*raw, **named)

        return place(gpu, host_value(gpu, self.name, accesses_of(given.found, (), False), compute))


def check_devices(name: str, found: Sequence[torch.Tensor]) -> None:
    """A kernel takes device tensors and host scalars; CUDA's error for anything else."""
    for t in found:
        if not isinstance(t, DeviceTensor) and t.dim() > 0:
            raise RuntimeError(_MIXED.format(t.device, name))


def take_scalars(gpu: GPU, name: str, value: Any) -> Any:
    """Host scalars go into a launch by value: the host reads them at the call."""
    if isinstance(value, DeviceTensor):
        return value
    if isinstance(value, torch.Tensor):
        if isinstance(value, PinnedTensor):
            gpu.machine.host_access(f"host {name}", value.access(True, False))
        with internals():
            return unwrap(value).clone()
    if isinstance(value, dict):
        return {k: take_scalars(gpu, name, v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return type(value)([take_scalars(gpu, name, v) for v in value])
    return value


def out_variant(func: Any) -> tuple[Any, list[str]] | None:
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
