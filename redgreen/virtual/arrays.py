"""NumPy views of pinned memory."""

from __future__ import annotations

from typing import Any

from .methods import escape
from .tensor import PinnedTensor


def track(tensor: PinnedTensor) -> Any:
    """An array over the pinned bytes."""
    escape(tensor, "numpy")
    return tensor.raw.numpy()
