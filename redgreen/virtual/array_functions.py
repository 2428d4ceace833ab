"""What NumPy's functions and the methods of its arrays do with tracked arrays.

Four kinds: no access (shapes), a view or else a copy, a read, a write of a named argument. A
function that is not listed reads its arguments and writes its ``out``.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import torch

from . import arrays
from .arrays import PinnedArray, arrays_of, escape_array, over, plain, strip, touch, tracked, wrap
from .escapes import read_on_host
from .patches import Patches
from .tensor import PinnedTensor, pinned_tensor

_SHAPES = {
    np.shape, np.ndim, np.size, np.result_type, np.can_cast, np.may_share_memory,
    np.shares_memory, np.empty_like, np.zeros_like, np.ones_like, np.iscomplexobj, np.isrealobj,
    np.common_type,
}  # fmt: skip
_VIEWS = {
    np.reshape, np.ravel, np.transpose, np.swapaxes, np.moveaxis, np.rollaxis, np.squeeze,
    np.expand_dims, np.split, np.array_split, np.hsplit, np.vsplit, np.dsplit, np.broadcast_to,
    np.broadcast_arrays, np.atleast_1d, np.atleast_2d, np.atleast_3d, np.flip, np.fliplr,
    np.flipud, np.rot90, np.diagonal, np.real, np.imag,
    np.lib.stride_tricks.sliding_window_view, np.lib.stride_tricks.as_strided,
}  # fmt: skip
_WRITES_FIRST = {np.copyto: "dst", np.put: "a", np.place: "arr", np.putmask: "a",
                 np.fill_diagonal: "a", np.put_along_axis: "arr"}  # fmt: skip


def call(func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """``func(*args, **kwargs)`` of NumPy with a tracked array somewhere among its arguments."""
    args, kwargs = arrays_of(args), {k: arrays_of(v) for k, v in kwargs.items()}
    name = func.__name__
    if func is np.take and isinstance(args[0], PinnedArray):
        return args[0].take(*args[1:], **kwargs)
    if func in _VIEWS:
        return arrays.view_or_copy(name, func, args, kwargs)
    sources = list(tracked((args, kwargs)))
    if func not in _SHAPES:
        written = list(tracked((kwargs.get("out"),)))
        first = _WRITES_FIRST.get(func)
        target = None if first is None else args[0] if args else kwargs[first]
        if isinstance(target, PinnedArray):
            _write_first(func, name, target, args, kwargs)
        else:
            touch(name, sources, written)
    result = func(*strip(args), **strip(kwargs))
    out = kwargs.get("out")
    return out if isinstance(out, PinnedArray) else wrap(result, sources)


def _write_first(func: Any, name: str, target: PinnedArray, args: Any, kwargs: Any) -> None:
    """Functions that write their first argument, where all of it or under a mask."""
    others = [a for a in tracked((args, kwargs)) if a is not target]
    masked = args[1] if len(args) > 1 else kwargs.get("mask")
    where = kwargs.get("where", True)
    if func is np.copyto and where is True:
        found = arrays.accesses(target, False, True)
    elif func is np.copyto:
        mask = np.broadcast_to(strip(where), target.shape)
        found = arrays.picked(target, lambda a: a[mask], False, True)
    elif func in (np.place, np.putmask):
        mask = np.reshape(strip(masked), target.shape)
        found = arrays.picked(target, lambda a: a[mask], False, True)
    elif func is np.put:
        found = arrays.picked(target, _taker(args[1:], kwargs), False, True)
    else:
        found = arrays.accesses(target, False, True)  # a few elements: more than it writes
    for other in others:
        found += arrays.accesses(other, True, False)
    arrays.record(name, target._block, found)


def _taker(args: Any, kwargs: Any) -> Callable[[Any], Any]:
    """What ``put(indices, values, mode)`` would take."""
    indices = args[0] if args else kwargs["ind" if "ind" in kwargs else "indices"]
    mode = kwargs.get("mode", args[2] if len(args) > 2 else "raise")
    return lambda positions: positions.take(strip(indices), mode=mode)


# -- methods ---------------------------------------------------------------------------------------

_READERS = (
    "all", "any", "argmax", "argmin", "argpartition", "argsort", "choose", "clip", "compress",
    "conj", "conjugate", "copy", "cumprod", "cumsum", "dot", "dump", "dumps", "flatten",
    "max", "mean", "min", "nonzero", "prod", "repeat", "round", "searchsorted", "std", "sum",
    "tobytes", "tofile", "tolist", "trace", "var", "__bool__", "__int__", "__float__",
    "__index__", "__complex__", "__contains__", "__copy__", "__str__", "__repr__", "__format__",
)  # fmt: skip
_VIEWERS = (
    "reshape", "transpose", "swapaxes", "squeeze", "diagonal", "ravel", "getfield", "astype",
)  # fmt: skip
_VIEW_ATTRIBUTES = ("T", "mT", "real", "imag")
_OVERWRITERS = ("fill",)
_UPDATERS = ("sort", "partition", "byteswap", "setfield", "resize")
_ESCAPES = ("ctypes", "data", "flat", "base", "__array_interface__", "__array_struct__")


def _reader(name: str) -> Callable[..., Any]:
    original = getattr(np.ndarray, name)

    @functools.wraps(original)
    def method(self: PinnedArray, *args: Any, **kwargs: Any) -> Any:
        out = kwargs.get("out")
        touch(name, tracked((self, args, kwargs)), tracked((out,)))
        result = original(plain(self), *strip(args), **strip(kwargs))
        return out if isinstance(out, PinnedArray) else result

    return method


def _viewer(name: str) -> Callable[..., Any]:
    original = getattr(np.ndarray, name)

    @functools.wraps(original)
    def method(self: PinnedArray, *args: Any, **kwargs: Any) -> Any:
        return arrays.view_or_copy(name, original, (self, *args), kwargs)

    return method


def _writer(name: str, reads: bool) -> Callable[..., Any]:
    original = getattr(np.ndarray, name)

    @functools.wraps(original)
    def method(self: PinnedArray, *args: Any, **kwargs: Any) -> Any:
        if reads:
            arrays.update(name, self)
        else:
            touch(name, tracked((args, kwargs)), [self])
        return original(plain(self), *strip(args), **strip(kwargs))

    return method


def _item(self: PinnedArray, *args: Any) -> Any:
    found = arrays.picked(self, lambda a: a.item(*args), True, False)
    arrays.record("item", self._block, found)
    return plain(self).item(*args)


def _take(self: PinnedArray, *args: Any, **kwargs: Any) -> Any:
    args, options = strip(args), {k: strip(v) for k, v in kwargs.items() if k != "out"}
    found = arrays.picked(self, lambda a: a.take(*args[:2], **options), True, False)
    for out in tracked((kwargs.get("out"),)):
        found += arrays.accesses(out, False, True)
    arrays.record("take", self._block, found)
    result = plain(self).take(*args, **options, out=strip(kwargs.get("out")))
    return kwargs["out"] if kwargs.get("out") is not None else result


def _put(self: PinnedArray, *args: Any, **kwargs: Any) -> None:
    found = arrays.picked(self, _taker(args, kwargs), False, True)
    for source in tracked((args, kwargs)):
        found += arrays.accesses(source, True, False)
    arrays.record("put", self._block, found)
    plain(self).put(*strip(args), **strip(kwargs))


def _view_attribute(name: str) -> property:
    original = getattr(np.ndarray, name)

    def get(self: PinnedArray) -> Any:
        return wrap(original.__get__(plain(self)), [self])

    def put(self: PinnedArray, value: Any) -> None:
        get(self)[...] = value

    return property(get, put)


def _escaping(name: str) -> property:
    original = getattr(np.ndarray, name)

    def get(self: PinnedArray) -> Any:
        escape_array(self, f"ndarray.{name}")
        return original.__get__(self if name == "base" else plain(self))

    def put(self: PinnedArray, value: Any) -> None:
        touch(name, (), [self])
        original.__set__(plain(self), value)

    return property(get, put)


def _view(self: PinnedArray, *args: Any, **kwargs: Any) -> Any:
    """``ndarray.view``: another type of array gets the memory itself, another dtype is a view."""
    made = np.ndarray.view(plain(self), *args, **kwargs)
    kind = kwargs.get("type", next((a for a in args if isinstance(a, type)), None))
    if kind is not None and issubclass(kind, np.ndarray) and kind is not PinnedArray:
        escape_array(self, f"ndarray.view({kind.__name__})")
        return made
    return over(made, self._block)


def _dlpack(self: PinnedArray, *args: Any, **kwargs: Any) -> Any:
    escape_array(self, "DLPack")
    return plain(self).__dlpack__(*args, **kwargs)


def _add_methods() -> None:
    for name in _READERS:
        setattr(PinnedArray, name, _reader(name))
    for name in _VIEWERS:
        setattr(PinnedArray, name, _viewer(name))
    for name in _OVERWRITERS:
        setattr(PinnedArray, name, _writer(name, reads=False))
    for name in _UPDATERS:
        setattr(PinnedArray, name, _writer(name, reads=True))
    for name in _VIEW_ATTRIBUTES:
        setattr(PinnedArray, name, _view_attribute(name))
    for name in _ESCAPES:
        setattr(PinnedArray, name, _escaping(name))
    PinnedArray.item = _item  # type: ignore[method-assign, assignment]
    PinnedArray.take = _take  # type: ignore[method-assign, assignment]
    PinnedArray.put = _put  # type: ignore[method-assign, assignment]
    PinnedArray.view = _view  # type: ignore[method-assign, assignment]
    PinnedArray.__dlpack__ = _dlpack  # type: ignore[method-assign, assignment]


_add_methods()


# -- functions that no protocol intercepts ---------------------------------------------------------

_MAKERS = ("array", "asarray", "asanyarray", "ascontiguousarray", "asfortranarray", "require")


@functools.cache
def _maker(original: Callable[..., Any]) -> Callable[..., Any]:
    """np.asarray and its relatives: a tracked view where they return a view, a read where not."""

    @functools.wraps(original)
    def make(*args: Any, **kwargs: Any) -> Any:
        source: Any = args[0] if args else None
        if not isinstance(source, (PinnedArray, PinnedTensor)) and not (
            type(source) in (list, tuple)
            and any(isinstance(s, (PinnedArray, PinnedTensor)) for s in source)
        ):
            return original(*args, **kwargs)
        source = arrays_of(source)
        result = arrays.view_or_copy(original.__name__, original, (source, *args[1:]), kwargs)
        same = isinstance(result, PinnedArray) and isinstance(source, PinnedArray)
        return source if same and _same(result, source) else result

    return make


def _same(a: PinnedArray, b: PinnedArray) -> bool:
    return (a.shape, a.strides, a.dtype) == (b.shape, b.strides, b.dtype)


@functools.cache
def _from_numpy(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch.from_numpy of a tracked array: a pinned tensor over the same bytes."""

    @functools.wraps(original)
    def from_numpy(array: Any) -> Any:
        if isinstance(array, PinnedArray):
            return pinned(array, original)
        return original(array)

    return from_numpy


def pinned(array: PinnedArray, from_numpy: Callable[..., Any]) -> torch.Tensor:
    """The array as a tensor. Torch's own conversion refuses what it must (negative strides)."""
    made: torch.Tensor = from_numpy(plain(array))
    block = array._block
    if block is None:
        return made
    offset = arrays._start(array, block) - block.start
    if offset % made.element_size():  # no tensor of this type can begin there
        escape_array(array, "torch.from_numpy")
        return made
    flat = block.view(made.dtype, block.nbytes // made.element_size() * made.element_size())
    with torch._C.DisableTorchFunction():
        real = flat.as_strided(made.shape, made.stride(), offset // made.element_size())
    return pinned_tensor(real, block)


@functools.cache
def _frombuffer(original: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(original)
    def frombuffer(buffer: Any, *args: Any, **kwargs: Any) -> Any:
        if isinstance(buffer, PinnedArray):
            escape_array(buffer, original.__name__)
            buffer = plain(buffer)
        return original(buffer, *args, **kwargs)

    return frombuffer


@functools.cache
def from_arrays(original: Callable[..., Any]) -> Callable[..., Any]:
    """torch.tensor reads a tracked array; torch.as_tensor and torch.asarray share it."""
    from_numpy = torch.from_numpy

    @functools.wraps(original)
    def factory(*args: Any, **kwargs: Any) -> Any:
        if args and isinstance(args[0], (list, tuple)):
            _read_nested(args[0])
        if args and isinstance(args[0], PinnedArray):
            shares = original.__name__ != "tensor"
            if not shares:
                touch("torch.tensor", [args[0]])
            source = pinned(args[0], from_numpy) if shares else plain(args[0])
            args = (source, *args[1:])
        return original(*args, **kwargs)

    return factory


def _read_nested(values: Any) -> None:
    """Pinned tensors and tracked arrays in a list: C++ reads them one by one."""
    for value in values:
        if isinstance(value, (list, tuple)):
            _read_nested(value)
        elif isinstance(value, PinnedTensor):
            read_on_host(value, "torch.tensor")
        elif isinstance(value, PinnedArray):
            touch("torch.tensor", [value])


def install(patches: Patches) -> None:
    """Patches the functions that take an array in C, in NumPy and in torch."""
    for name in _MAKERS:
        patches.set(np, name, _maker(getattr(np, name)))
    patches.set(np, "frombuffer", _frombuffer(np.frombuffer))
    patches.set(torch, "frombuffer", _frombuffer(torch.frombuffer))
    for name in ("tensor", "as_tensor", "asarray"):
        patches.set(torch, name, from_arrays(getattr(torch, name)))
    patches.set(torch, "from_numpy", _from_numpy(torch.from_numpy))
