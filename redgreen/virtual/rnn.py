"""Recurrent layers: the formulas that the CPU uses.

C++ takes PrivateUse1 for a device with fused cells and calls kernels that only CUDA has
(RNN.cpp: ``is_cuda() || is_privateuseone()``). Torch's own decompositions stand in for the layers.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch._decomp import decompositions
from torch.nn.functional import linear

from .dispatch import aten, special
from .gpu import GPU


def _lstm_cell(
    input: torch.Tensor, hx: list[torch.Tensor], w_ih: torch.Tensor, w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None, b_hh: torch.Tensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
    gates = linear(hx[0], w_hh, b_hh) + linear(input, w_ih, b_ih)
    enter, forget, cell, leave = gates.chunk(4, 1)
    cy = forget.sigmoid() * hx[1] + enter.sigmoid() * cell.tanh()
    return leave.sigmoid() * cy.tanh(), cy


def _gru_cell(
    input: torch.Tensor, hx: torch.Tensor, w_ih: torch.Tensor, w_hh: torch.Tensor,
    b_ih: torch.Tensor | None = None, b_hh: torch.Tensor | None = None,
) -> torch.Tensor:  # fmt: skip
    i = linear(input, w_ih, b_ih).chunk(3, 1)
    h = linear(hx, w_hh, b_hh).chunk(3, 1)
    reset, update = (h[0] + i[0]).sigmoid(), (h[1] + i[1]).sigmoid()
    new = (i[2] + h[2] * reset).tanh()
    return (hx - new) * update + new


_FORMULAS: dict[Any, Callable[..., Any]] = {
    aten.lstm.input: decompositions.lstm_impl,
    aten.lstm.data: decompositions.lstm_data_impl,
    aten.gru.input: decompositions.gru_impl,
    aten.gru.data: decompositions.gru_impl_data,
    aten.lstm_cell.default: _lstm_cell,
    aten.gru_cell.default: _gru_cell,
}


@special(*_FORMULAS)
def _layer(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return _FORMULAS[func](*args, **kwargs)


def register(library: torch.library.Library) -> None:
    """Also with autograd on, where C++ would decompose them above the dispatch to Python."""
    for op, formula in _FORMULAS.items():
        library.impl(op, formula, "AutogradPrivateUse1")
