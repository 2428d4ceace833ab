"""Rule 11: each access of the host to pinned memory is recorded, with its bytes, beforehand.

Each row is a statement on a pinned float32 tensor ``p`` of shape (3, 4), its array ``a`` and plain
operands, and the bytes of the block that it must read and write.
"""

from __future__ import annotations

import copy
import ctypes
import hashlib
import io
import os
import pickle
import struct
from collections.abc import Iterable
from typing import Any, NamedTuple

import numpy as np
import pytest
import torch

from redgreen.schedule import LAZY
from redgreen.virtual import VirtualGPU
from tests.child import in_child
from tests.virtual.audit import members


def element(*places: tuple[int, int]) -> frozenset[int]:
    return frozenset(16 * i + 4 * j + byte for i, j in places for byte in range(4))


def row(*rows: int) -> frozenset[int]:
    return element(*((i, j) for i in rows for j in range(4)))


def column(*columns: int) -> frozenset[int]:
    return element(*((i, j) for i in range(3) for j in columns))


NO: frozenset[int] = frozenset()
ALL = row(0, 1, 2)

# The tensor is 0 .. 11; the statements see p, a, plain (3, 4) operands t and q, and a free array.
TENSOR: list[tuple[str, Iterable[int], Iterable[int]]] = [
    # views and metadata are no access
    ("p[0]", NO, NO),
    ("p[1:, ::2]", NO, NO),
    ("p.unbind()", NO, NO),
    ("p.split(1)", NO, NO),
    ("p.chunk(2)", NO, NO),
    ("p.narrow(0, 1, 2)", NO, NO),
    ("p.t()", NO, NO),
    ("p.view(-1)", NO, NO),
    ("p.view(torch.int32)", NO, NO),
    ("p.contiguous()", NO, NO),
    ("p.data", NO, NO),
    ("p.detach()", NO, NO),
    ("p.expand(2, 3, 4)", NO, NO),
    ("p.squeeze_()", NO, NO),
    ("list(p)", NO, NO),
    ("len(p)", NO, NO),
    ("p.shape, p.stride(), p.is_pinned(), p.dtype", NO, NO),
    ("p.numpy()", NO, NO),
    ("np.asarray(p)", NO, NO),
    ("torch.empty_like(p)", NO, NO),
    # reads below the dispatcher and above it
    ("p.tolist()", ALL, NO),
    ("p[1].tolist()", row(1), NO),
    ("p[0, 1].item()", element((0, 1)), NO),
    ("bool(p[0, 1])", element((0, 1)), NO),
    ("float(p[0, 1])", element((0, 1)), NO),
    ("int(p[0, 1])", element((0, 1)), NO),
    ("complex(p[0, 1])", element((0, 1)), NO),
    ("[1, 2, 3][p.to(torch.int64)[0, 1]]", ALL, NO),
    ("f'{p[0, 1]:.2f}'", element((0, 1)), NO),
    ("if p[2, 3]: pass", element((2, 3)), NO),
    ("3 in p", ALL, NO),
    ("repr(p)", ALL, NO),
    ("str(p[1])", row(1), NO),
    ("p == 1", ALL, NO),
    ("torch.equal(p, t)", ALL, NO),
    ("torch.cat([p[:1], t])", row(0), NO),
    ("torch.stack([p[1], p[2]])", row(1, 2), NO),
    ("p.sum()", ALL, NO),
    ("p[:, 1].clone()", column(1), NO),
    ("p.t().contiguous()", ALL, NO),
    ("p[[0, 2]]", row(0, 2), NO),
    ("p.index_select(1, torch.tensor([3]))", column(3), NO),
    ("p[torch.tensor([[True] * 4, [False] * 4, [False] * 4])]", row(0), NO),
    ("pickle.dumps(p)", ALL, NO),
    ("torch.save(p, io.BytesIO())", ALL, NO),
    ("copy.deepcopy(p)", ALL, NO),
    ("torch.tensor(p)", ALL, NO),
    ("torch.tensor([p[0, 0], p[1, 1]])", element((0, 0), (1, 1)), NO),
    ("np.array(p)", ALL, NO),
    ("np.asarray(p, np.float64)", ALL, NO),
    ("np.concatenate([p, q])", ALL, NO),
    ("np.add(q, p)", ALL, NO),
    ("np.stack([p, p])", ALL, NO),
    # writes
    ("p[1] = 5", NO, row(1)),
    ("p[0, 1] = 5", NO, element((0, 1))),
    ("p[0:2] = t[:2]", NO, row(0, 1)),
    ("p[:, 2] = t[:, 2]", NO, column(2)),
    ("p[p > 9] = 0", ALL, element((2, 2), (2, 3))),
    ("p[[0, 2], [1, 3]] = 7", NO, element((0, 1), (2, 3))),
    ("p[1] = p[0]", row(0), row(1)),
    ("p.copy_(t)", NO, ALL),
    ("p[1].copy_(t[0])", NO, row(1)),
    ("p.fill_(2)", NO, ALL),
    ("p.zero_()", NO, ALL),
    ("p.uniform_()", NO, ALL),
    ("p += 1", ALL, ALL),
    ("p[0].mul_(2)", row(0), row(0)),
    ("p.index_fill_(0, torch.tensor([1]), 2)", NO, row(1)),
    ("p.index_add_(0, torch.tensor([1]), t[:1])", row(1), row(1)),
    ("p.scatter_(1, torch.tensor([[2]]), 1.5)", NO, element((0, 2))),
    ("torch.add(t, 1, out=p)", NO, ALL),
    ("torch.add(p, 1, out=t)", ALL, NO),
    ("p.apply_(lambda v: v + 1)", ALL, ALL),
    ("p.map_(t, lambda v, w: v + w)", ALL, ALL),
    ("t.pin_memory()", NO, NO),
]

ARRAY: list[tuple[str, Iterable[int], Iterable[int]]] = [
    # views and metadata
    ("a[0]", NO, NO),
    ("a[1:, ::2]", NO, NO),
    ("a[::-1]", NO, NO),
    ("a[..., 0]", NO, NO),
    ("a.T", NO, NO),
    ("a.reshape(-1)", NO, NO),
    ("a.reshape(4, 3)[1:].T", NO, NO),
    ("a.view(np.int32)", NO, NO),
    ("a.astype(np.float32, copy=False)", NO, NO),
    ("np.asarray(a)", NO, NO),
    ("np.ascontiguousarray(a)", NO, NO),
    ("np.reshape(a, -1)", NO, NO),
    ("np.split(a, 3)", NO, NO),
    ("np.broadcast_to(a, (2, 3, 4))", NO, NO),
    ("torch.from_numpy(a)", NO, NO),
    ("torch.from_numpy(a[1:])", NO, NO),
    ("torch.as_tensor(a)", NO, NO),
    ("a.shape, a.dtype, len(a), np.shape(a), a.nbytes", NO, NO),
    # reads
    ("a[0, 1]", element((0, 1)), NO),
    ("a.item(5)", element((1, 1)), NO),
    ("a.item(1, 2)", element((1, 2)), NO),
    ("a[1:, 2].tolist()", element((1, 2), (2, 2)), NO),
    ("a[::-1][0].tolist()", row(2), NO),
    ("a[:, ::-1][0, :2].tolist()", element((0, 2), (0, 3)), NO),
    ("a.T[1].copy()", column(1), NO),
    ("a[[0, 2]]", row(0, 2), NO),
    ("a[[0, -1], [1, -1]]", element((0, 1), (2, 3)), NO),
    ("a[q == 1]", NO, NO),
    ("a[np.array([False, True, False])]", row(1), NO),
    ("a[a > 9]", ALL, NO),
    ("list(a[1])", row(1), NO),
    ("for line in a[1:]: line.sum()", row(1, 2), NO),
    ("a + 1", ALL, NO),
    ("1 - a[0]", row(0), NO),
    ("a[0] == a[2]", row(0, 2), NO),
    ("a @ q.T", ALL, NO),
    ("q @ a.T", ALL, NO),
    ("a.sum()", ALL, NO),
    ("a[:, 1].max()", column(1), NO),
    ("a.argmax(axis=0)", ALL, NO),
    ("a.tobytes()", ALL, NO),
    ("a.astype(np.float64)", ALL, NO),
    ("a.T.reshape(-1)", ALL, NO),
    ("a.flatten()", ALL, NO),
    ("a.take([1], axis=1)", column(1), NO),
    ("np.take(a, [5])", element((1, 1)), NO),
    ("7 in a", ALL, NO),
    ("bool(a[0, 0])", element((0, 0)), NO),
    ("repr(a[1])", row(1), NO),
    ("f'{a[2]}'", row(2), NO),
    ("np.mean(a[:2])", row(0, 1), NO),
    ("np.where(q > 0, a, q)", ALL, NO),
    ("np.array_equal(a[0], q[0])", row(0), NO),
    ("np.concatenate([a[:1], q])", row(0), NO),
    ("np.sort(a[1])", row(1), NO),
    ("np.linalg.norm(a)", ALL, NO),
    ("np.add(q, a, out=q)", ALL, NO),
    ("np.array(a)", ALL, NO),
    ("np.array([a[0], a[1]])", row(0, 1), NO),
    ("torch.tensor(a[0])", row(0), NO),
    ("pickle.dumps(a[0])", row(0), NO),
    ("copy.deepcopy(a)", ALL, NO),
    ("copy.copy(a)", ALL, NO),
    ("np.save(io.BytesIO(), a)", ALL, NO),
    ("torch.from_numpy(a[1:]).sum()", row(1, 2), NO),
    ("torch.from_numpy(a)[:, 1].tolist()", column(1), NO),
    ("open(os.devnull, 'wb').write(a)", ALL, NO),
    ("io.BytesIO().write(a[1])", row(1), NO),
    ("hashlib.sha256(a[:2])", row(0, 1), NO),
    ("b''.join([a[0], a[2]])", row(0, 2), NO),
    ("struct.unpack_from('f', a[1])", row(1), NO),
    ("(ctypes.c_char * 16).from_buffer_copy(a[2])", row(2), NO),
    # writes
    ("a[0, 1] = 5", NO, element((0, 1))),
    ("a[1] = 5", NO, row(1)),
    ("a[:] = q", NO, ALL),
    ("a[...] = 0", NO, ALL),
    ("a[1] = a[0]", row(0), row(1)),
    ("a[:2] = p[1:]", row(1, 2), row(0, 1)),
    ("a[[0, 2], 1] = 4", NO, element((0, 1), (2, 1))),
    ("a[a > 9] = 1", ALL, element((2, 2), (2, 3))),
    ("a.T[3] = 1", NO, column(3)),
    ("a[::-1][0] = 1", NO, row(2)),
    ("a.reshape(-1)[5] = 1", NO, element((1, 1))),
    ("a.view(np.uint8)[0, 3] = 1", NO, {3}),
    ("a += 1", ALL, ALL),
    ("a[1] *= 2", row(1), row(1)),
    ("a.fill(3)", NO, ALL),
    ("a[1].sort()", row(1), row(1)),
    ("a.put([5], 1)", NO, element((1, 1))),
    ("a.real = 2", NO, ALL),
    ("np.copyto(a, q)", NO, ALL),
    ("np.copyto(p.numpy(), q)", NO, ALL),
    ("np.copyto(a, 1, where=np.eye(3, 4) == 1)", NO, element((0, 0), (1, 1), (2, 2))),
    ("np.putmask(a, q == 0, 1)", NO, ALL),
    ("np.put(a, [0], 1)", NO, element((0, 0))),
    ("np.add(q, 1, out=a)", NO, ALL),
    ("np.add(q[0], 1, out=a[1])", NO, row(1)),
    ("np.add(a, 1, out=a)", ALL, ALL),
    ("np.add.at(a, [0], 1)", row(0), row(0)),
    ("np.sum(q, axis=0, out=a[2])", NO, row(2)),
    ("np.cumsum(a[0], out=a[1])", row(0), row(1)),
    ("torch.from_numpy(a[1:]).fill_(1)", NO, row(1, 2)),
    ("torch.from_numpy(a)[0, 0] = 1", NO, element((0, 0))),
    ("a[1:] = a[:0:-1].copy()", row(1, 2), row(1, 2)),
    ("io.BytesIO(bytes(16)).readinto(a[1])", NO, row(1)),
    ("struct.pack_into('f', a[0], 4, 1.0)", NO, row(0)),
]

ESCAPES = [
    ("p.data_ptr()", "data_ptr"),
    ("p.untyped_storage()", "untyped_storage"),
    ("p.storage()", "storage"),
    ("p.__dlpack__()", "DLPack"),
    ("np.from_dlpack(p)", "DLPack"),
    ("torch.utils.dlpack.from_dlpack(p)", "DLPack"),
    ("a.ctypes", "ndarray.ctypes"),
    ("a.data", "ndarray.data"),
    ("a.flat", "ndarray.flat"),
    ("a.base", "ndarray.base"),
    ("a.view(np.ndarray)", "ndarray.view(ndarray)"),
    ("a.__array_interface__", "ndarray.__array_interface__"),
    ("np.from_dlpack(a)", "DLPack"),
    ("np.frombuffer(a)", "frombuffer"),
    ("torch.frombuffer(a, dtype=torch.float32)", "frombuffer"),
    ("a.__array__()", "__array__"),
    ("memoryview(a)", "memoryview"),
    ("memoryview(a[1])[0] = 7", "memoryview"),
    ("pickle.PickleBuffer(a)", "memoryview"),
    ("(ctypes.c_char * 48).from_buffer(a)", "memoryview"),
    ("np.ndarray(12, np.float32, a)", "memoryview"),
    ("np.random.default_rng().random(out=a, dtype=np.float32)", "C code with the array handed out"),
]


class Seen(NamedTuple):
    reads: frozenset[int]
    writes: frozenset[int]
    escapes: list[str]


def run_all(statements: list[str]) -> dict[str, Seen]:
    """What each statement did, each on a tensor of its own."""
    result = {}
    for statement in statements:
        with VirtualGPU() as virtual:
            p = torch.arange(12, dtype=torch.float32).view(3, 4).pin_memory()
            names: dict[str, Any] = {
                "p": p, "a": p.numpy(), "t": torch.zeros(3, 4), "q": np.zeros((3, 4), np.float32),
                "np": np, "torch": torch, "copy": copy, "io": io, "pickle": pickle, "os": os,
                "ctypes": ctypes, "hashlib": hashlib, "struct": struct,
            }  # fmt: skip
            machine, block = virtual.gpu.machine, p.block  # type: ignore[attr-defined]
            before = len(machine.works)
            exec(statement, names)
            virtual.gpu.memory.pinned.look()
            found = [
                access
                for work in machine.works[before:]
                for access in work.accesses
                if access.memory == block.memory.id
            ]
            result[statement] = Seen(
                frozenset[int]().union(*(members(f.extent) for f in found if f.reads)),
                frozenset[int]().union(*(members(f.extent) for f in found if f.writes)),
                list(machine.trace.escapes),
            )
    return result


@pytest.fixture(scope="module")
def seen() -> dict[str, Seen]:
    statements = [r[0] for r in (*TENSOR, *ARRAY, *ESCAPES)]
    return in_child(lambda: run_all(statements))


@pytest.mark.parametrize(("statement", "reads", "writes"), TENSOR, ids=[r[0] for r in TENSOR])
def test_tensor_access_is_recorded(
    seen: dict[str, Seen], statement: str, reads: Iterable[int], writes: Iterable[int]
) -> None:
    assert seen[statement] == Seen(frozenset(reads), frozenset(writes), [])


@pytest.mark.parametrize(("statement", "reads", "writes"), ARRAY, ids=[r[0] for r in ARRAY])
def test_array_access_is_recorded(
    seen: dict[str, Seen], statement: str, reads: Iterable[int], writes: Iterable[int]
) -> None:
    assert seen[statement] == Seen(frozenset(reads), frozenset(writes), [])


@pytest.mark.parametrize(("statement", "how"), ESCAPES, ids=[r[0] for r in ESCAPES])
def test_address_that_leaves_is_an_escape(seen: dict[str, Seen], statement: str, how: str) -> None:
    (escape,) = {e.split(" at ")[0] for e in seen[statement].escapes}
    assert escape == f"pinned 48 B by {how}"


# -- before it happens, and for how long -----------------------------------------------------------


def _lazy_download(read: str) -> list[float]:
    """The host reads the destination of a download that nothing has forced yet."""
    with VirtualGPU(LAZY):
        p = torch.zeros(4, pin_memory=True)
        p.copy_(torch.ones(4, device="cuda"), non_blocking=True)
        result: list[float] = eval(read, {"p": p, "a": p.numpy(), "np": np, "torch": torch})
        return result


@pytest.mark.parametrize("read", ["a.tolist()", "p.tolist()", "np.add(a, 0).tolist()"])
def test_early_read_sees_the_old_bytes(read: str) -> None:
    assert in_child(lambda: _lazy_download(read)) == [0, 0, 0, 0]


@pytest.mark.parametrize("read", ["a.tolist()", "p.tolist()", "np.add(a, 0).tolist()"])
def test_read_after_a_sync_sees_the_new_bytes(read: str) -> None:
    assert in_child(lambda: _lazy_download(f"[torch.cuda.synchronize(), {read}][1]")) == [1] * 4


def test_array_keeps_the_block_alive() -> None:
    def work() -> list[list[str]]:
        with VirtualGPU() as virtual:
            machine = virtual.gpu.machine
            tensor = torch.ones(4, pin_memory=True)
            views = [tensor.numpy()[1:].reshape(3, 1).T]
            states = []
            for holder in ("tensor", "view"):
                before = len(machine.works)
                if holder == "tensor":
                    del tensor
                else:
                    views.clear()
                states.append([w.op for w in machine.works[before:]])
            return states

    assert in_child(work) == [[], ["free"]]


def test_array_outlives_the_gpu() -> None:
    def work() -> list[Any]:
        with VirtualGPU():
            array = torch.ones(4, pin_memory=True).numpy()
        array[0] = 3
        array += 1
        return [array.tolist(), array[1:].sum().item(), (array * 2).tolist(), repr(array[:1])]

    assert in_child(work) == [[4, 2, 2, 2], 6, [8, 4, 4, 4], "array([4.], dtype=float32)"]


def test_pinning_an_array_copies_it() -> None:
    def work() -> tuple[list[float], int]:
        with VirtualGPU() as virtual:
            array = np.zeros(4, np.float32)
            pinned = torch.from_numpy(array).pin_memory()
            before = len(virtual.gpu.machine.works)
            array[:] = 1
            return pinned.tolist(), len(virtual.gpu.machine.works) - before - 1

    assert in_child(work) == ([0, 0, 0, 0], 0)


def test_tensor_from_a_tracked_array_is_pinned_and_shares_the_block() -> None:
    def work() -> tuple[bool, list[float]]:
        with VirtualGPU(LAZY):
            source = torch.zeros(4, pin_memory=True)
            again = torch.from_numpy(source.numpy()[2:])
            device = again.to("cuda", non_blocking=True)
            source.fill_(1)  # before the upload executes
            return again.is_pinned(), device.tolist()

    assert in_child(work) == (True, [1, 1])


def test_sharing_pinned_memory_between_processes_is_refused() -> None:
    def work() -> list[str]:
        with VirtualGPU() as virtual:
            with pytest.raises(NotImplementedError):
                torch.ones(4, pin_memory=True).share_memory_()
            return virtual.finish().trace.refusals

    assert in_child(work) == ["Tensor.share_memory_ of a pinned tensor"]


# -- host scalars of a kernel ----------------------------------------------------------------------


def _scaled(pin: bool) -> tuple[list[float], list[str]]:
    with VirtualGPU(LAZY) as virtual:
        scalar = torch.tensor(2.0)
        scalar = scalar.pin_memory() if pin else scalar
        device = torch.ones(2, device="cuda")
        before = len(virtual.gpu.machine.works)
        result = device * scalar
        ops = [w.op for w in virtual.gpu.machine.works[before:] if w.accesses]
        scalar.fill_(5)  # the kernel has it by value
        return result.tolist(), ops


def test_pinned_scalar_is_read_by_the_host_at_the_call() -> None:
    assert in_child(lambda: _scaled(True)) == (
        [2, 2], ["host aten.mul.Tensor", "aten.mul.Tensor"],
    )  # fmt: skip


def test_pageable_scalar_is_taken_by_value_without_a_step() -> None:
    assert in_child(lambda: _scaled(False)) == ([2, 2], ["aten.mul.Tensor"])


# -- the net for writes that nobody records --------------------------------------------------------


def _upload(write: str, prepare: str = "None") -> tuple[list[float], list[tuple[str, str]]]:
    with VirtualGPU(LAZY) as virtual:
        p = torch.zeros(4, pin_memory=True)
        names: dict[str, Any] = {"p": p, "a": p.numpy(), "np": np, "torch": torch}
        names["out"] = eval(prepare, names)
        device = p.to("cuda", non_blocking=True)
        exec(write, names)
        values = device.tolist()
        trace = virtual.finish().trace
        return values, [
            (n.kind, trace.sites[n.site].code)
            for n in trace.notes
            if n.kind == "untracked-host-write"
        ]


@pytest.mark.parametrize(
    ("write", "prepare"),
    [
        ("out[1] = 7", "memoryview(a)"),
        ("out[1] = 7", "a.view(np.ndarray)"),
        ("out[1] = 7", "torch.utils.dlpack.from_dlpack(p)"),
        ("out.contents[1] = 7", "a.ctypes.data_as(__import__('ctypes').POINTER("
                                "__import__('ctypes').c_float * 4))"),
        ("p[2] = 1; out[1] = 7", "memoryview(a)"),
    ],
)  # fmt: skip
def test_unseen_write_of_an_upload_source_is_noted(write: str, prepare: str) -> None:
    values, notes = in_child(lambda: _upload(write, prepare))
    assert values[1] == 7
    assert notes == [("untracked-host-write", 'device = p.to("cuda", non_blocking=True)')]


@pytest.mark.parametrize("write", ["p[1] = 7", "a[1] = 7", "np.copyto(a, 7)", "a[[1, 3]] += 7"])
def test_recorded_write_of_an_upload_source_is_not_noted(write: str) -> None:
    values, notes = in_child(lambda: _upload(write))
    assert (values[1], notes) == (7, [])
