"""Which bytes an operator touches, where its schema does not say it exactly.

The schema says what is written; everything else is read, whole tensors. That is too much where an
operator picks rows by an index tensor (a paged KV cache: two streams in disjoint pages do not
conflict), so those are refined when they execute and the index values are known. An index out of
range counts as the whole tensor; the kernel then fails anyway.

Masks are not refined: CUDA's kernels of ``masked_fill_`` and ``masked_scatter_`` (cuda/Indexing.cu)
read every element and write every element back, the unmasked ones as they were, so a concurrent
write to an unmasked element is lost there as well. ``where`` reads both of its sources in full.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import torch

from ..trace import Access
from .gpu import BACKEND
from .picks import Numbers, Place, picked
from .tensor import DeviceTensor, VirtualTensor

aten = torch.ops.aten
Named = dict[str, Any]
Tensors = Sequence[torch.Tensor]
# (args, kwargs, tensors found, tensors written) at enqueue -> accesses at execution, when the
# index values are known. What is returned holds raw tensors only.
Rule = Callable[[Any, Any, Tensors, Tensors], Callable[[], tuple[Access, ...]] | None]


# -- reads and writes of whole tensors -------------------------------------------------------------

_OVERWRITING = {
    "aten::copy_", "aten::fill_", "aten::zero_", "aten::uniform_", "aten::normal_",
    "aten::random_", "aten::bernoulli_", "aten::exponential_", "aten::log_normal_",
    "aten::cauchy_", "aten::geometric_", "aten::_foreach_zero_", "aten::_foreach_copy_",
}  # fmt: skip

# Operators whose schema keeps a write to itself: running statistics, updated in training.
_STATISTICS = {
    "aten::native_batch_norm", "aten::cudnn_batch_norm", "aten::miopen_batch_norm",
    "aten::batch_norm_update_stats", "aten::batch_norm_gather_stats",
    "aten::batch_norm_gather_stats_with_counts",
}  # fmt: skip

# Operators that look at the shape of their tensor argument and not at its bytes.
_SHAPE_ONLY = {
    "aten::zeros_like", "aten::ones_like", "aten::full_like", "aten::rand_like", "aten::randn_like",
    "aten::randint_like", "aten::new_zeros", "aten::new_ones", "aten::new_full",
}  # fmt: skip


def reads(func: Any) -> bool:
    """False for factories that take a tensor as a pattern."""
    return func._schema.name not in _SHAPE_ONLY


def overwrites(func: Any) -> bool:
    """True where the written tensors are not read first."""
    name = func._schema.name
    return name in _OVERWRITING or any(a.is_out for a in func._schema.arguments)


def undeclared_writes(func: Any) -> Callable[[Any, Any], list[torch.Tensor]] | None:
    """What this operator writes in these arguments though its schema does not say so."""
    if func._schema.name not in _STATISTICS:
        return None
    names = [a.name for a in func._schema.arguments]

    def written(args: Any, kwargs: Any) -> list[torch.Tensor]:
        named = {**dict(zip(names, args, strict=False)), **kwargs}
        if not named.get("training", True):
            return []
        return [t for t in (named["running_mean"], named["running_var"]) if t is not None]

    return written


# -- parts of tensors ------------------------------------------------------------------------------


class Selection(NamedTuple):
    """A tensor of which only a part is used: these indices along these dimensions."""

    tensor: Any
    dims: list[int]
    indices: Callable[[], list[Any]]  # NumPy arrays, read at execution
    reads: bool = True  # where it is written: is it read first?


@dataclass(frozen=True, slots=True)
class _Pick:
    """How an operator picks: from the named argument, by this function of all arguments."""

    select: Callable[[Named], Selection | None]
    writes: bool = False


def _values(index: torch.Tensor) -> Callable[[], list[Any]]:
    raw = index.raw if isinstance(index, VirtualTensor) else index
    return lambda: [raw.numpy()]


def _rows(source: str, index: str, dim: int | None = None) -> Callable[[Named], Selection | None]:
    """Rows along one dimension."""

    def select(named: Named) -> Selection | None:
        tensor = named[source]
        if tensor.dim() == 0:
            return None
        along = named["dim"] if dim is None else dim
        return Selection(tensor, [along % tensor.dim()], _values(named[index]), _reads(named))

    return select


def _reads(named: Named) -> bool:
    """Does a write by index depend on what was there?"""
    return bool(named.get("accumulate") or named.get("reduce"))


def _always_reads(select: Callable[[Named], Selection | None]) -> Any:
    def reading(named: Named) -> Selection | None:
        found = select(named)
        return None if found is None else found._replace(reads=True)

    return reading


def _coordinates(named: Named) -> Selection | None:
    """``tensor[i, j]`` with index tensors; a mask covers as many dimensions as it has."""
    tensor, used = named["self"], named["indices"]
    if tensor.dim() == 0 or (isinstance(tensor, DeviceTensor) and any(map(is_mask, used))):
        return None  # what is still a mask on the device is a masked_fill_
    dims: list[int] = []
    at = 0
    for index in used:
        covers = index.dim() if is_mask(index) else 1
        dims += range(at, at + covers) if index is not None else ()
        at += covers
    raws = [i.raw if isinstance(i, VirtualTensor) else i for i in used if i is not None]

    def indices() -> list[Any]:
        lists = [r.numpy().nonzero() if is_mask(r) else (r.numpy(),) for r in raws]
        return [i for group in lists for i in group]

    return Selection(tensor, dims, indices, _reads(named))


def _elements(named: Named) -> Selection | None:
    """gather and scatter: element p of the index picks p with p[dim] exchanged for its value."""
    tensor, index, dim = named["self"], named["index"], named["dim"]
    if tensor.dim() == 0 or index.dim() != tensor.dim():
        return None
    raw = index.raw if isinstance(index, VirtualTensor) else index
    along = dim % tensor.dim()

    def indices() -> list[Any]:
        grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in raw.shape)])
        grid[along] = raw.numpy()
        return grid

    return Selection(tensor, list(range(tensor.dim())), indices, _reads(named))


def _flat(named: Named) -> Selection | None:
    """take and put_: positions in the flattened tensor."""
    tensor, index = named["self"], named["index"]
    if tensor.dim() == 0 or tensor.numel() == 0:
        return None
    raw = index.raw if isinstance(index, VirtualTensor) else index
    shape, count = tuple(tensor.shape), tensor.numel()

    def indices() -> list[Any]:
        values: Numbers = raw.numpy().astype(np.int64)
        if values.size and (values.min() < -count or values.max() >= count):
            return [np.full(1, n) for n in shape]  # out of range in each dimension
        return list(np.unravel_index(values % count, shape))

    return Selection(tensor, list(range(tensor.dim())), indices, _reads(named))


_PICKS: dict[str, _Pick] = {
    "aten::index": _Pick(_coordinates),
    "aten::_unsafe_index": _Pick(_coordinates),
    "aten::index_select": _Pick(_rows("self", "index")),
    "aten::gather": _Pick(_elements),
    "aten::take": _Pick(_flat),
    "aten::embedding": _Pick(_rows("weight", "indices", 0)),
    "aten::_embedding_bag": _Pick(_rows("weight", "indices", 0)),
    "aten::_embedding_bag_forward_only": _Pick(_rows("weight", "indices", 0)),
    "aten::index_put_": _Pick(_coordinates, writes=True),
    "aten::_index_put_impl_": _Pick(_coordinates, writes=True),
    "aten::index_copy_": _Pick(_rows("self", "index"), writes=True),
    "aten::index_fill_": _Pick(_rows("self", "index"), writes=True),
    "aten::index_add_": _Pick(_always_reads(_rows("self", "index")), writes=True),
    "aten::index_reduce_": _Pick(_always_reads(_rows("self", "index")), writes=True),
    "aten::scatter_": _Pick(_elements, writes=True),
    "aten::scatter_reduce_": _Pick(_elements, writes=True),
    "aten::scatter_add_": _Pick(_always_reads(_elements), writes=True),
    "aten::put_": _Pick(_flat, writes=True),
    "aten::embedding_renorm_": _Pick(_always_reads(_rows("self", "indices", 0)), writes=True),
}


def find(func: Any) -> Rule | None:
    """The refinement of this operator, if it has one."""
    pick = _PICKS.get(func._schema.name)
    if pick is None:
        return None
    names = [a.name for a in func._schema.arguments]
    reads_targets = not overwrites(func)

    def rule(
        args: Any, kwargs: Any, found: Tensors, written: Tensors
    ) -> Callable[[], tuple[Access, ...]] | None:
        selection = pick.select({**dict(zip(names, args, strict=False)), **kwargs})
        if selection is None or not isinstance(selection.tensor, VirtualTensor):
            return None
        place = Place.of(selection.tensor)
        dims, indices = selection.dims, selection.indices
        reads, writes = selection.reads or not pick.writes, pick.writes
        rest = _rest(selection.tensor, found, written, reads_targets)

        def refine() -> tuple[Access, ...]:
            return place.accesses(picked(place, dims, indices()), reads, writes) + rest

        return refine

    return rule


def _rest(
    part: torch.Tensor, found: Tensors, written: Tensors, reads_targets: bool
) -> tuple[Access, ...]:
    """Accesses of the other arguments, whole. The same tensor may be an argument once more."""
    result: tuple[Access, ...] = ()
    for t in written:
        if t is not part and isinstance(t, VirtualTensor):
            fresh = not any(t is f for f in found)  # an output that the operator allocated
            result += t.access(reads_targets and not fresh, True)
    seen = False
    for t in found:
        if t is part and not seen:
            seen = True
        elif isinstance(t, VirtualTensor) and not any(t is w and w is not part for w in written):
            result += t.access(True, False)
    return result


# -- indices ---------------------------------------------------------------------------------------

_INDEXING = {"aten::index", "aten::index_put_", "aten::index_put", "aten::_index_put_impl_"}


def is_mask(index: torch.Tensor | None) -> bool:
    return index is not None and index.dtype in (torch.bool, torch.uint8)


def takes_indices(func: Any) -> bool:
    return func._schema.name in _INDEXING


def prepare_indices(func: Any, args: tuple[Any, ...], kwargs: Named) -> tuple[Any, ...]:
    """Indices as CUDA's kernels take them: on the device, and no masks.

    A mask becomes indices by ``nonzero``, which waits for the stream; one value for all masked
    elements goes through ``masked_fill_`` instead and waits for nothing (TensorAdvancedIndexing).
    Host indices go to the device by a blocking copy.
    """
    if isinstance(args[0], (str, list)):
        return args
    indices = args[1]
    if not isinstance(args[0], DeviceTensor) and any(isinstance(i, DeviceTensor) for i in indices):
        raise RuntimeError(
            "indices should be either on cpu or on the same device as the indexed tensor (cpu)"
        )
    if any(is_mask(i) for i in indices) and not fills(func, args, kwargs):
        indices = without_masks(args[0], indices)
    if isinstance(args[0], DeviceTensor):
        place = torch.device(BACKEND, 0)
        indices = [
            aten._to_copy.default(i, device=place)
            if isinstance(i, torch.Tensor) and not isinstance(i, DeviceTensor)
            else i
            for i in indices
        ]
    return (args[0], indices, *args[2:])


def fills(func: Any, args: tuple[Any, ...], kwargs: Named) -> bool:
    """Is this ``tensor[mask] = value`` with one value? (canDispatchToMaskedFill)"""
    values = args[2] if len(args) > 2 else kwargs.get("values")
    accumulate = args[3] if len(args) > 3 else kwargs.get("accumulate", False)
    if values is None or values.numel() != 1 or accumulate:
        return False
    used = [i for i in args[1] if i is not None]
    return len(used) == 1 and is_mask(used[0])


def without_masks(
    tensor: torch.Tensor, indices: Sequence[torch.Tensor | None]
) -> list[torch.Tensor | None]:
    result: list[torch.Tensor | None] = []
    for index in indices:
        if index is None or not is_mask(index):
            result.append(index)
            continue
        at = len(result)
        if index.shape != tensor.shape[at : at + index.dim()]:
            raise IndexError(
                f"The shape of the mask {list(index.shape)} at index 0 does not match the shape "
                f"of the indexed tensor {list(tensor.shape)} at index {at}"
            )
        result.extend(aten.nonzero.default(index).unbind(1))
    return result


def shape_from_data(func: Any, args: tuple[Any, ...], kwargs: Named) -> bool:
    """Does the output's shape depend on values? Not for indexing: its masks are indices by now."""
    if func._schema.name in _INDEXING:
        return False
    return kwargs.get("output_size") is None  # repeat_interleave may be told
