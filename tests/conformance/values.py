"""What the conformance tests look at: buffers filled with one value."""

from __future__ import annotations

import torch
from torch import Tensor

N = 1024  # small enough that a pageable copy of it is staged at once
BIG = 1 << 20


def pinned(value: float, n: int = N) -> Tensor:
    return torch.full((n,), float(value), pin_memory=True)


def pageable(value: float, n: int = N) -> Tensor:
    return torch.full((n,), float(value))


def on_device(value: float, n: int = N) -> Tensor:
    return torch.full((n,), float(value), device="cuda")


def tracked(tensor: Tensor) -> Tensor:
    """With autograd on the tensor takes part in it; write to it through ``detach()`` then."""
    return tensor.requires_grad_() if torch.is_grad_enabled() else tensor


def value(tensor: Tensor) -> float:
    """The one value that fills the tensor. Of a device tensor: once everything is done."""
    if tensor.is_cuda:
        torch.cuda.synchronize()
    values = set(tensor.detach().cpu().flatten().tolist())
    assert len(values) == 1, values
    return float(values.pop())


def seen_from(stream: torch.cuda.Stream, tensor: Tensor) -> float:
    """The value that ``stream`` reads now: this waits for ``stream`` and no other."""
    with torch.cuda.stream(stream):
        host = tensor.detach().cpu()
    return value(host)
