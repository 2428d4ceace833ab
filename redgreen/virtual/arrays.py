"""NumPy views of pinned memory that record every access of the host.

A `PinnedArray` is an ``ndarray`` over a pinned block. A view of it is another one; whatever reads
or writes elements is recorded first, with the bytes of exactly the view in question, and is then
done on a plain array over the same memory. Results that share no memory with a block are plain.

C code that asks for plain bytes by the buffer protocol (``f.write``, ``f.readinto``, a hash, a
socket) uses them in that call, which is recorded as well. What hands the memory to somebody else
(``memoryview``, ``ctypes``, ``.data``, DLPack, ``.view(numpy.ndarray)``, ``.base``, ``.flat``)
makes the block escape. C code that takes the pointer out of the array (``numpy.random`` with
``out=``, Cython) asks nobody; `redgreen.virtual.escapes` looks for its writes.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from ..trace import Access, Extent
from .buffers import replace_slot
from .escapes import escape, hand_out
from .extents import extent
from .gpu import if_installed
from .memory import Block
from .picks import MAX_EXTENTS, Place, runs
from .tensor import PinnedTensor

Array = npt.NDArray[Any]


# -- where an array lies, and recording ------------------------------------------------------------


def plain(array: Any) -> Any:
    """The same memory as an ordinary array."""
    return np.ndarray.view(array, np.ndarray)


def _start(array: PinnedArray, block: Block) -> int:
    return int(plain(array).__array_interface__["data"][0]) - block.memory.address


def _extent(array: Array, start: int) -> Extent | None:
    """Bytes of an array whose first element is at ``start``; reversed dimensions turned round."""
    shape, strides = [], []
    for count, stride in zip(array.shape, array.strides, strict=True):
        if stride < 0 < count:
            start, stride = start + (count - 1) * stride, -stride
        shape.append(count)
        strides.append(stride)
    return extent(start, (*shape, array.itemsize), (*strides, 1), 1)


def accesses(array: PinnedArray, reads: bool, writes: bool) -> tuple[Access, ...]:
    """The access of a step that uses the whole array."""
    block = array._block
    if block is None or array.dtype.hasobject:
        return ()
    where = _extent(plain(array), _start(array, block))
    if where is None or where.start < 0 or where.stop > block.memory.size:
        return ()
    return (Access(block.memory.id, block.allocation, where, reads, writes),)


def picked(
    array: PinnedArray, pick: Callable[[Any], Any], reads: bool, writes: bool
) -> tuple[Access, ...]:
    """The access to the elements that a function picks: it is tried on an array of positions."""
    block = array._block
    if block is None:
        return ()
    offsets = np.unique(pick(_positions(array, block)))
    place = Place(block.memory.id, block.allocation, 0, (), (), 1)
    found = runs(place, offsets, (array.itemsize,), (1,), 0)
    if found is None or len(found) > MAX_EXTENTS:
        return accesses(array, reads, writes)
    return place.accesses(found, reads, writes)


def _positions(array: PinnedArray, block: Block) -> npt.NDArray[np.int64]:
    """For each element, the byte of the memory at which it begins."""
    result = np.full(array.shape, _start(array, block), np.int64)
    for dim, (count, stride) in enumerate(zip(array.shape, array.strides, strict=True)):
        steps = np.arange(count) * stride
        result += steps.reshape(-1, *[1] * (array.ndim - dim - 1))
    return result


def record(op: str, block: Block | None, found: tuple[Access, ...]) -> None:
    """A host access that is about to happen; nothing once the block's GPU is gone."""
    g = if_installed()
    if found and block is not None and g is not None and g.machine is block.heap.machine:
        g.machine.host_access(f"numpy {op}", found)


def touch(op: str, read: Iterable[PinnedArray], written: Iterable[PinnedArray] = ()) -> None:
    """One host access that reads and writes these arrays whole."""
    written = list(written)
    read = [a for a in read if not any(a is w for w in written)]
    found: tuple[Access, ...] = ()
    for array in read:
        found += accesses(array, True, False)
    for array in written:
        found += accesses(array, False, True)
    for array in [*read, *written][:1]:
        record(op, array._block, found)


def update(op: str, array: PinnedArray) -> None:
    """One host access that reads the array and writes it."""
    record(op, array._block, accesses(array, True, True))


# -- arguments and results -------------------------------------------------------------------------


def tracked(values: Any) -> Iterator[PinnedArray]:
    """All tracked arrays in nested arguments; pinned tensors count as their arrays."""
    for value in values:
        if isinstance(value, PinnedArray):
            yield value
        elif isinstance(value, (list, tuple)):
            yield from tracked(value)
        elif isinstance(value, dict):
            yield from tracked(value.values())


def strip(value: Any) -> Any:
    """Arguments with ordinary arrays in place of tracked ones."""
    if isinstance(value, PinnedArray):
        return plain(value)
    if isinstance(value, PinnedTensor):
        return value.raw.numpy()
    if type(value) in (list, tuple):
        return type(value)([strip(v) for v in value])
    if type(value) is dict:
        return {k: strip(v) for k, v in value.items()}
    return value


def arrays_of(values: Any) -> Any:
    """Arguments with tracked arrays in place of pinned tensors."""
    if isinstance(values, PinnedTensor):
        return values.numpy()
    if type(values) in (list, tuple):
        return type(values)([arrays_of(v) for v in values])
    return values


def wrap(result: Any, sources: Iterable[PinnedArray]) -> Any:
    """A result that lies in the memory of a source is tracked as well."""
    if isinstance(result, (list, tuple)):
        parts = [wrap(r, sources) for r in result]
        if hasattr(result, "_fields"):
            return type(result)(*parts)
        return type(result)(parts)
    if not isinstance(result, np.ndarray) or isinstance(result, PinnedArray):
        return result
    for source in sources:
        if np.may_share_memory(result, plain(source)):
            return over(result, source._block)
    return result


def over(array: Array, block: Block | None) -> PinnedArray:
    """A tracked array over the memory of ``array``."""
    made: PinnedArray = np.ndarray.view(array, PinnedArray)
    made._block = block
    return made


def shared(result: Any, sources: list[PinnedArray]) -> bool:
    """Is everything in the result a view of the sources?"""
    if isinstance(result, (list, tuple)):
        return all(shared(r, sources) for r in result)
    return isinstance(result, np.ndarray) and (
        result.size == 0 or any(np.may_share_memory(result, plain(s)) for s in sources)
    )


def view_or_copy(
    op: str, call: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Any:
    """A function that returns views where it can. If it copied, that was a read: do it again."""
    sources = list(tracked((args, kwargs)))
    result = call(*strip(args), **strip(kwargs))
    if not shared(result, sources):
        touch(op, sources)
        result = call(*strip(args), **strip(kwargs))
    return wrap(result, sources)


def _is_basic(key: Any) -> bool:
    """Integers, slices, ``...``, ``None``, field names: an index that makes a view."""
    parts = key if isinstance(key, tuple) else (key,)
    return all(
        p is None or p is Ellipsis or isinstance(p, (slice, str, int, np.integer))
        for p in parts
        if not isinstance(p, (bool, np.bool_))
    ) and not any(isinstance(p, (bool, np.bool_)) for p in parts)


def _part(array: PinnedArray, key: Any) -> Array:
    """What a basic index selects, as an array even where it is one element."""
    if isinstance(key, str):
        return plain(array)[key]  # type: ignore[no-any-return]
    parts = key if isinstance(key, tuple) else (key,)
    return plain(array)[parts if Ellipsis in parts else (*parts, ...)]  # type: ignore[no-any-return]


# -- the array -------------------------------------------------------------------------------------


class PinnedArray(np.ndarray):
    """An array over pinned memory. Keeps the block alive, as any NumPy view keeps its memory."""

    _block: Block | None

    def __array_finalize__(self, obj: Any) -> None:
        self._block = getattr(obj, "_block", None)

    def __getitem__(self, key: Any) -> Any:
        key = _index(key)
        if not _is_basic(key):
            record("getitem", self._block, picked(self, lambda a: a[key], True, False))
            return plain(self)[key]
        part = over(_part(self, key), self._block)
        parts = key if isinstance(key, tuple) else (key,)
        if part.ndim == 0 and not any(p is Ellipsis for p in parts):
            touch("getitem", [part])
            return plain(self)[key]
        return part

    def __setitem__(self, key: Any, value: Any) -> None:
        key, value = _index(key), arrays_of(value)
        if _is_basic(key):
            where = over(_part(self, key), self._block)
            touch("setitem", tracked((value,)), [where])
        else:
            found = picked(self, lambda a: a[key], False, True)
            for source in tracked((value,)):
                found += accesses(source, True, False)
            record("setitem", self._block, found)
        plain(self)[key] = strip(value)

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        tensors = [i for i in inputs if isinstance(i, PinnedTensor)]
        outs = kwargs.get("out") or ()
        outs = outs if isinstance(outs, tuple) else (outs,)
        written = list(tracked(outs))
        inputs = tuple([arrays_of(i) for i in inputs])
        read = list(tracked((inputs, {k: v for k, v in kwargs.items() if k != "out"})))
        if method == "at":
            target, key = inputs[0], _index(inputs[1])
            found = picked(target, lambda a: a[key], True, True)
            for source in read:
                found += () if source is target else accesses(source, True, False)
            record(ufunc.__name__, target._block, found)
            getattr(ufunc, method)(plain(target), *strip(inputs[1:]), **strip(kwargs))
            return None
        both = [w for w in written if any(w is r for r in read)]
        found = ()
        for array in [*read, *written]:
            if any(array is b for b in both):
                continue
            is_out = any(array is w for w in written)
            found += accesses(array, not is_out or _partly(kwargs), is_out)
        for array in both:
            found += accesses(array, True, True)
        for array in [*read, *written][:1]:
            record(ufunc.__name__, array._block, found)
        result = getattr(ufunc, method)(*strip(inputs), **strip(kwargs))
        if written:
            return outs[0] if len(outs) == 1 else outs
        if tensors and method == "__call__" and isinstance(result, np.ndarray):
            return torch.from_numpy(result)  # a tensor, as Tensor.__array_wrap__ has it
        return result

    def __array_function__(self, func: Any, types: Any, args: Any, kwargs: Any) -> Any:
        from .array_functions import call

        return call(func, args, kwargs)

    def __reduce_ex__(self, protocol: Any) -> Any:
        touch("pickle", [self])
        return plain(self).__reduce_ex__(protocol)

    def __deepcopy__(self, memo: Any) -> Any:
        touch("deepcopy", [self])
        return plain(self).__deepcopy__(memo)

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        escape_array(self, "__array__")
        return np.array(plain(self), dtype, copy=copy)

    def __buffer__(self, flags: int, /) -> memoryview:
        _give_bytes(self, flags)
        return memoryview(plain(self))


def _partly(kwargs: dict[str, Any]) -> bool:
    """With a mask, elements of ``out`` keep their values."""
    return kwargs.get("where", True) is not True


def _index(key: Any) -> Any:
    """An index without tracked arrays: those are read now."""
    key = arrays_of(key)
    touch("index", tracked((key,)))
    return strip(key)


def escape_array(array: PinnedArray, how: str) -> None:
    if array._block is not None:
        escape(array._block, how)


_WRITABLE, _ND = 1, 8  # PyBUF_WRITABLE, PyBUF_ND


def _give_bytes(array: PinnedArray, flags: int) -> None:
    """C code asks for the bytes. Who asks for strides or a format may keep what it gets."""
    if flags & ~(_WRITABLE | _ND):
        escape_array(array, "memoryview")
    else:
        writes = bool(flags & _WRITABLE)
        record("buffer", array._block, accesses(array, not writes, writes))


if sys.version_info < (3, 12):
    replace_slot(PinnedArray, _give_bytes)


def track(tensor: PinnedTensor) -> PinnedArray:
    """A tracked array over the tensor's bytes. Making it is no access."""
    hand_out(tensor.block)
    return over(tensor.raw.resolve_conj().resolve_neg().numpy(), tensor.block)
