"""What a virtual GPU leaves behind in its process, and what it bears from before."""

from __future__ import annotations

import torch
from torch.utils.data import DataLoader, TensorDataset

from redgreen.virtual import VirtualGPU
from tests.child import in_child


def gradient(device: str) -> list[float]:
    x = torch.ones(3, device=device, requires_grad=True)
    (x * 2).sum().backward()
    assert x.grad is not None
    return x.grad.tolist()


def virtual_gradient() -> list[float]:
    with VirtualGPU() as gpu:
        result = gradient("cuda")
        gpu.finish()
    return result


def test_a_child_runs_backward_after_its_parent_did() -> None:
    def parent() -> list[list[float]]:
        return [gradient("cpu"), virtual_gradient(), in_child(virtual_gradient)]

    assert in_child(parent) == [[2.0] * 3] * 3


def test_there_is_no_accelerator_outside() -> None:
    def batches() -> list[bool]:
        data = DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2, pin_memory=True)
        return [batch.is_pinned() for (batch,) in data]

    def inside_and_outside() -> tuple[bool, list[bool], bool, list[bool]]:
        with VirtualGPU() as gpu:
            inside = torch.accelerator.is_available(), batches()
            gpu.finish()
        return *inside, torch.accelerator.is_available(), batches()

    assert in_child(inside_and_outside) == (True, [True] * 2, False, [False] * 2)
