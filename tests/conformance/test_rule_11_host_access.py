"""Rule 11: host access outside the dispatcher counts."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest
import torch

from tests.conformance.device import Device
from tests.conformance.values import N, on_device, pinned, value


def test_writing_through_numpy_changes_a_pinned_source(gpu: Device, mode: str) -> None:
    source, destination, side = pinned(1), on_device(0), torch.cuda.Stream()
    array = source.numpy()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        array[:] = 2
    assert value(destination) == 2
    assert value(source) == 2


def test_reading_through_numpy_shows_a_pinned_destination_as_it_is(gpu: Device) -> None:
    source, destination, side = on_device(1), pinned(0), torch.cuda.Stream()
    array = destination.numpy()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        assert array[0] == 0
        assert array.sum() == 0
        assert array.tolist()[:2] == [0, 0]
    side.synchronize()
    assert array[0] == 1
    assert array.sum() == N


def test_numpy_functions_read_and_write_pinned_memory(gpu: Device) -> None:
    source, destination, side = pinned(1), on_device(0), torch.cuda.Stream()
    array = source.numpy()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        np.copyto(array, np.full(N, 2, dtype=np.float32))
        np.add(array, 1, out=array)
    assert value(destination) == 3


def test_asarray_shares_pinned_memory(gpu: Device) -> None:
    source, destination, side = pinned(1), on_device(0), torch.cuda.Stream()
    array = np.asarray(source)
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        array[...] = 2
    assert value(destination) == 2


def test_a_slice_of_the_array_writes_pinned_memory(gpu: Device) -> None:
    source, destination, side = pinned(1), on_device(0), torch.cuda.Stream()
    half = source.numpy()[: N // 2]
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        half += 1
    assert value(destination[: N // 2]) == 2
    assert value(destination[N // 2 :]) == 1


def test_from_numpy_of_the_array_shares_pinned_memory(gpu: Device) -> None:
    source, destination, side = pinned(1), on_device(0), torch.cuda.Stream()
    again = torch.from_numpy(source.numpy())
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        again.fill_(2)
    assert value(destination) == 2


def test_ctypes_writes_pinned_memory(gpu: Device) -> None:
    source, destination, side = pinned(1), on_device(0), torch.cuda.Stream()
    words = (ctypes.c_float * N).from_address(source.data_ptr())
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        for i in range(N):
            words[i] = 2
    assert value(destination) == 2


def test_dlpack_shares_pinned_memory(gpu: Device) -> None:
    source, destination, side = pinned(1), on_device(0), torch.cuda.Stream()
    array = np.from_dlpack(source)
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        assert np.shares_memory(array, source.numpy())
        source.fill_(2)
        assert array[0] == 2
    assert value(destination) == 2


def test_item_assignment_writes_pinned_memory(gpu: Device) -> None:
    source, destination, side = pinned(1), on_device(0), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            destination.copy_(source, non_blocking=True)
        source[3] = 7.0
    torch.cuda.synchronize()
    assert destination[3].item() == 7
    assert destination[4].item() == 1


def test_numpy_of_a_device_tensor_is_refused(gpu: Device) -> None:
    text = (
        r"can't convert cuda:0 device type tensor to numpy\. "
        r"Use Tensor\.cpu\(\) to copy the tensor to host memory first\."
    )
    with pytest.raises(TypeError, match=text):
        on_device(1).numpy()
    with pytest.raises(TypeError, match=text):
        np.asarray(on_device(1))


def test_numpy_that_requires_grad_is_refused(gpu: Device) -> None:
    with pytest.raises(RuntimeError, match=r"Can't call numpy\(\) on Tensor that requires grad"):
        pinned(1).requires_grad_().numpy()
