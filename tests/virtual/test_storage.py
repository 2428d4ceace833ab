"""Storages of device tensors: sizes, addresses, freeing by resize_(0), bringing back."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch

from redgreen.races import analyse
from redgreen.schedule import LAZY, SERIAL
from redgreen.trace import Trace
from redgreen.virtual import VirtualGPU
from tests.child import in_child, preload


@pytest.fixture(autouse=True)
def template() -> None:
    preload()


def on_gpu(subject: Callable[[], Any]) -> Any:
    """The subject's result, the same in both schedules."""

    def work() -> list[Any]:
        results = []
        for schedule in (SERIAL, LAZY):
            with VirtualGPU(schedule):
                results.append(subject())
        return results

    serial, lazy = in_child(work)
    assert serial == lazy
    return serial


def test_size_and_address() -> None:
    def subject() -> list[Any]:
        a = torch.ones(6, device="cuda")
        s = a.untyped_storage()
        return [
            s.nbytes(), s.size(), len(s), s.data_ptr() == a.data_ptr(), s.device.type, s.is_cuda,
            a.storage().size(), len(a.storage()), a.storage().nbytes(),
            a.storage().data_ptr() == a.data_ptr(), isinstance(s, torch.UntypedStorage),
            torch.empty(0, device="cuda").untyped_storage().data_ptr(),
        ]  # fmt: skip

    assert on_gpu(subject) == [24, 24, 24, True, "cuda", True, 6, 6, 24, True, True, 0]


def test_views_share_the_storage_and_copies_do_not() -> None:
    def subject() -> list[Any]:
        a = torch.arange(6.0, device="cuda")
        view, copy = a[2:].view(2, 2).t(), a.clone()
        of = [t.untyped_storage() for t in (a, view, copy)]
        return [
            of[0] == of[1], of[0]._cdata == of[1]._cdata, hash(of[0]) == hash(of[1]),
            of[0].data_ptr() == of[1].data_ptr(), of[1].nbytes(), of[0] == of[2],
            view.data_ptr() - of[1].data_ptr(), a.detach().untyped_storage() is of[0],
        ]  # fmt: skip

    assert on_gpu(subject) == [True, True, True, True, 24, False, 8, True]


def test_resize_to_zero_frees_the_block_and_keeps_the_shape() -> None:
    def subject() -> list[Any]:
        a = torch.ones(5, device="cuda")
        address, before = a.data_ptr(), torch.cuda.memory_allocated()
        a.untyped_storage().resize_(0)
        freed = before - torch.cuda.memory_allocated()
        b = torch.empty(5, device="cuda")
        return [freed, tuple(a.shape), a.untyped_storage().nbytes(), a.data_ptr(),
                b.data_ptr() == address, a.storage().size()]  # fmt: skip

    assert on_gpu(subject) == [512, (5,), 0, 0, True, 0]


def test_a_freed_storage_comes_back_for_all_that_share_it() -> None:
    def subject() -> list[Any]:
        a = torch.ones(2, 3, device="cuda")
        view, kept = a[1], a.untyped_storage()
        identity = kept._cdata
        kept.resize_(0)
        a.untyped_storage().resize_(24)
        a.copy_(torch.arange(6.0).view(2, 3))
        view.mul_(10)
        return [a.tolist(), view.tolist(), kept.nbytes(), kept._cdata == identity,
                kept is a.untyped_storage() is view.untyped_storage(),
                view.data_ptr() - a.data_ptr()]  # fmt: skip

    assert on_gpu(subject) == [[[0, 1, 2], [30, 40, 50]], [30, 40, 50], 24, True, True, 12]


def test_growing_keeps_the_bytes() -> None:
    def subject() -> list[Any]:
        a = torch.arange(4.0, device="cuda")
        a.untyped_storage().resize_(1024)
        a.add_(1)
        return [a.tolist(), a.untyped_storage().nbytes(), a.set_(a.untyped_storage()).numel()]

    assert on_gpu(subject) == [[1, 2, 3, 4], 1024, 256]


def test_set_to_a_part_of_a_storage() -> None:
    def subject() -> list[Any]:
        a = torch.arange(6.0, device="cuda")
        b = torch.empty(0, device="cuda")
        b.set_(a.untyped_storage(), 1, (2, 2), (1, 2))
        b.mul_(10)
        return [a.tolist(), b.tolist()]

    assert on_gpu(subject) == [[0, 10, 20, 30, 40, 5], [[10, 30], [20, 40]]]


def test_a_kernel_on_a_freed_storage_is_an_illegal_access() -> None:
    def work() -> list[str]:
        seen = []
        with VirtualGPU(LAZY):
            a = torch.ones(5, device="cuda")
            view = a[1:]
            a.untyped_storage().resize_(0)
            view.add_(1)  # launches
            seen.append("launched")
            try:
                torch.cuda.synchronize()
            except RuntimeError as error:
                seen.append(str(error))
        return seen

    launched, error = in_child(work)
    assert launched == "launched"
    assert "an illegal memory access was encountered" in error


def test_the_storage_object_keeps_the_block() -> None:
    def subject() -> list[Any]:
        a = torch.ones(5, device="cuda")
        storage, address = a.untyped_storage(), a.data_ptr()
        del a
        other = torch.empty(5, device="cuda")
        del storage
        return [other.data_ptr() != address, torch.empty(5, device="cuda").data_ptr() == address]

    assert on_gpu(subject) == [True, True]


def sharded(record: bool, join: bool = True) -> list[float]:
    """FSDP in small: a parameter is gathered on a side stream, used, freed, gathered again."""
    gather, compute = torch.cuda.Stream(), torch.cuda.current_stream()
    shard = torch.arange(4.0, device="cuda")
    parameter = torch.empty(4, device="cuda")
    parameter.untyped_storage().resize_(0)
    total = torch.zeros(4, device="cuda")
    gather.wait_stream(compute)
    for step in range(2):
        with torch.cuda.stream(gather):
            parameter.untyped_storage().resize_(16)
            parameter.copy_(shard)
            parameter.add_(step)
        if join:
            compute.wait_stream(gather)
        total.add_(parameter)
        if record:
            parameter.record_stream(compute)
        parameter.untyped_storage().resize_(0)
    return total.tolist()


@pytest.mark.parametrize(
    ("record", "join", "hazards"),
    [(True, True, set()), (False, True, {"UAF"}), (True, False, {"RAW"})],
)
def test_free_and_restore_around_a_stream(record: bool, join: bool, hazards: set[str]) -> None:
    def work() -> tuple[list[float], Trace]:
        with VirtualGPU(SERIAL) as virtual:
            result = sharded(record, join)
            return result, virtual.finish().trace

    result, trace = in_child(work)
    assert result == [1, 3, 5, 7]
    assert {race.hazard for race in analyse(trace, set()).races} == hazards


def test_bytes() -> None:
    def subject() -> list[Any]:
        a = torch.tensor([1, 258], dtype=torch.int16, device="cuda")
        s = a.untyped_storage()
        found = [s.tolist(), s[2], s[1:3].tolist(), s.cpu().tolist(), s.cpu().device.type]
        copy = s.clone()
        s.fill_(1)
        s[0] = 3
        host = torch.UntypedStorage([9, 9, 8, 8])
        copy_of = copy.tolist()
        copy.copy_(host)
        return [*found, a.tolist(), copy_of, copy.tolist(), host.to(device="cuda").tolist()]

    assert on_gpu(subject) == [
        [1, 0, 2, 1], 2, [0, 2], [1, 0, 2, 1], "cpu", [259, 257], [1, 0, 2, 1], [9, 9, 8, 8],
        [9, 9, 8, 8],
    ]  # fmt: skip
