"""Rule 12: errors are CUDA's, raised where CUDA raises them; nothing falls back silently."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.conformance.device import Device
from tests.conformance.values import on_device, pageable, pinned, value

SAME_DEVICE = "Expected all tensors to be on the same device"
MIXED: dict[str, Callable[[Tensor, Tensor], object]] = {
    "add": lambda device, host: device + host,
    "add_from_the_left": lambda device, host: host + device,
    "add_in_place": lambda device, host: device.add_(host),
    "add_in_place_on_host": lambda device, host: host.add_(device),
    "compare": lambda device, host: device == host,
    "where": lambda device, host: torch.where(device > 0, device, host),
    "cat": lambda device, host: torch.cat([device, host]),
    "stack": lambda device, host: torch.stack([device, host]),
    "matmul": lambda device, host: device.view(32, 32) @ host.view(32, 32),
    "linear": lambda device, host: torch.nn.functional.linear(
        device.view(32, 32), host.view(32, 32)
    ),
    "dot": lambda device, host: torch.dot(device, host),
    "out": lambda device, host: torch.add(device, device, out=host),
    "addcmul": lambda device, host: torch.addcmul(device, device, host),
    "gather": lambda device, host: device.gather(0, host.long()),
    "index_select": lambda device, host: device.index_select(0, host.long()),
    "embedding": lambda device, host: torch.nn.functional.embedding(
        host.long()[:4], device.view(32, 32)
    ),
    "layer_norm": lambda device, host: torch.nn.functional.layer_norm(device, (1024,), host),
}


@pytest.mark.parametrize("name", list(MIXED))
def test_operands_on_host_and_device_are_refused(gpu: Device, mode: str, name: str) -> None:
    device, host = on_device(1), pageable(1)
    with pytest.raises(RuntimeError, match=SAME_DEVICE):
        MIXED[name](device, host)


def test_pinned_memory_is_host_memory(gpu: Device) -> None:
    with pytest.raises(RuntimeError, match=SAME_DEVICE):
        on_device(1) + pinned(1)


def test_a_host_number_in_a_tensor_is_accepted(gpu: Device, mode: str) -> None:
    assert value(on_device(1) + torch.tensor(2.0)) == 3
    assert value(torch.tensor(2.0) * on_device(3)) == 6
    assert value(on_device(1).add_(torch.tensor(2.0))) == 3


def test_a_device_number_is_no_host_operand(gpu: Device) -> None:
    with pytest.raises(RuntimeError, match=SAME_DEVICE):
        pageable(1) + on_device(1).sum()


def test_host_indices_are_accepted(gpu: Device, mode: str) -> None:
    a = torch.arange(8, device="cuda")
    assert a[torch.tensor([1, 3])].tolist() == [1, 3]
    a[torch.tensor([0, 1])] = 9
    assert a.tolist()[:3] == [9, 9, 2]


def test_device_indices_of_a_host_tensor_are_refused(gpu: Device, mode: str) -> None:
    text = r"indices should be either on cpu or on the same device as the indexed tensor \(cpu\)"
    with pytest.raises(RuntimeError, match=text):
        pageable(1)[torch.zeros(2, device="cuda", dtype=torch.long)]


def test_shape_errors_are_immediate(gpu: Device, mode: str) -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), gpu.hold(side) as gate:

        def add() -> None:
            with pytest.raises(RuntimeError, match="must match the size of tensor b"):
                torch.ones(3, device="cuda") + torch.ones(4, device="cuda")

        assert not gpu.waits(gate, add)


def test_shape_errors_leave_the_device_usable(gpu: Device) -> None:
    with pytest.raises(RuntimeError, match="mat1 and mat2 shapes cannot be multiplied"):
        torch.ones(3, 4, device="cuda") @ torch.ones(3, 4, device="cuda")
    torch.cuda.synchronize()
    assert value(on_device(1) + 1) == 2


def test_host_index_errors_are_immediate(gpu: Device) -> None:
    with pytest.raises(IndexError, match="out of bounds for dimension 0 with size 1024"):
        on_device(1)[5000]


@pytest.mark.own_process
def test_a_wrong_device_index_surfaces_at_the_next_sync(gpu: Device, mode: str) -> None:
    a, index = on_device(1), torch.full((4,), 5000, device="cuda")
    a[index]
    with pytest.raises(RuntimeError, match="device-side assert triggered"):
        torch.cuda.synchronize()


@pytest.mark.own_process
def test_a_device_error_is_sticky(gpu: Device) -> None:
    a, index = on_device(1), torch.full((4,), 5000, device="cuda")
    a[index]
    for _ in range(3):
        with pytest.raises(RuntimeError, match="CUDA error: device-side assert triggered"):
            torch.cuda.synchronize()
    with pytest.raises(RuntimeError, match="device-side assert triggered"):
        a.cpu()


@pytest.mark.own_process
def test_a_wrong_index_behind_a_gate_is_no_error_yet(gpu: Device) -> None:
    a, index, side = on_device(1), torch.full((4,), 5000, device="cuda"), torch.cuda.Stream()
    torch.cuda.synchronize()
    with gpu.hold(side):
        with torch.cuda.stream(side):
            a[index]
        torch.cuda.default_stream().synchronize()
    with pytest.raises(RuntimeError, match="device-side assert triggered"):
        side.synchronize()


def test_a_device_that_is_not_there(gpu: Device) -> None:
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(1, device=f"cuda:{torch.cuda.device_count()}")


def test_copies_between_devices_are_no_error(gpu: Device, mode: str) -> None:
    a = on_device(0)
    a.copy_(pageable(2))
    a[:1].copy_(a[1:2].cpu())
    assert value(a) == 2


def test_singular_matrices_raise_at_the_call(gpu: Device) -> None:
    with pytest.raises(torch.linalg.LinAlgError, match="singular"):
        torch.linalg.inv(torch.zeros(3, 3, device="cuda"))
