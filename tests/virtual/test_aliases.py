"""What shares memory: a write through one is seen through the other, as on the CPU.

Schemas do not always say it: ``contiguous`` may return its argument, ``_unsafe_view`` is a view
though its schema promises a new tensor, ``reshape`` may or may not copy. Each function is run on
the CPU and on the virtual GPU; then the result is written and the argument read, and the other
way round; bytes, shapes and strides must agree.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from redgreen.schedule import LAZY
from redgreen.virtual import VirtualGPU
from tests.child import in_child
from tests.conformance.device import MODES

aten = torch.ops.aten
Function = Callable[[torch.Tensor], Any]

FUNCTIONS: dict[str, Function] = {
    "contiguous": lambda x: x.contiguous(),
    "contiguous of transposed": lambda x: x.t().contiguous(),
    "to same dtype": lambda x: x.to(torch.float32),
    "to copy": lambda x: x.to(torch.float32, copy=True),
    "to double": lambda x: x.to(torch.float64),
    "type_as": lambda x: x.type_as(x),
    "_to_copy": lambda x: aten._to_copy.default(x),
    "reshape that views": lambda x: x.reshape(2, 12),
    "reshape that copies": lambda x: x.t().reshape(-1),
    "flatten": lambda x: x.flatten(),
    "ravel": lambda x: x.ravel(),
    "view": lambda x: x.view(-1),
    "view dtype": lambda x: x.view(torch.int32).view(torch.float32),
    "_reshape_alias": lambda x: aten._reshape_alias.default(x, [24], [1]),
    "_unsafe_view": lambda x: aten._unsafe_view.default(x, [24]),
    "alias": lambda x: aten.alias.default(x),
    "detach": lambda x: x.detach(),
    "data": lambda x: x.data,
    "lift_fresh": lambda x: aten.lift_fresh.default(x),
    "expand": lambda x: x[:1].expand(3, 6),
    "expand_as": lambda x: x.expand_as(x),
    "broadcast_to": lambda x: torch.broadcast_to(x[0], (2, 6)),
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "squeeze_": lambda x: x[None].clone().squeeze_(0),
    "unsqueeze_ of a view": lambda x: x.view(4, 6).unsqueeze_(0),
    "t_ of a view": lambda x: x.view(4, 6).t_(),
    "transpose_ of a view": lambda x: x.view(4, 6).transpose_(0, 1),
    "as_strided windows": lambda x: x.as_strided((3, 4), (1, 2), 2),
    "as_strided_ of a view": lambda x: x.view(4, 6).as_strided_((2, 2), (6, 1), 1),
    "unfold": lambda x: x.unfold(1, 3, 2),
    "diagonal": lambda x: x.diagonal(),
    "movedim": lambda x: x.movedim(0, 1),
    "unbind": lambda x: x.unbind(1)[2],
    "split": lambda x: x.split(2)[1],
    "chunk": lambda x: x.chunk(3, 1)[1],
    "unsafe_chunk": lambda x: x.unsafe_chunk(2)[1],
    "unsafe_split": lambda x: x.unsafe_split(3, 1)[1],
    "tensor_split": lambda x: x.tensor_split(2)[1],
    "narrow": lambda x: x.narrow(1, 1, 2),
    "select": lambda x: x.select(0, 1),
    "basic index": lambda x: x[1:, ::2],
    "fancy index": lambda x: x[[0, 1]],
    "positive": lambda x: x.positive(),
    "real": lambda x: x.real,
    "view_as_complex": lambda x: torch.view_as_complex(x.view(4, 3, 2)),
    "view_as_real": lambda x: torch.view_as_real(torch.view_as_complex(x.view(4, 3, 2))),
    "conj": lambda x: torch.view_as_complex(x.view(4, 3, 2)).conj(),
    "resolve_conj": lambda x: torch.view_as_complex(x.view(4, 3, 2)).conj().resolve_conj(),
    "resolve_neg": lambda x: x.resolve_neg(),
    "clone": lambda x: x.clone(),
    "dropout in evaluation": lambda x: torch.nn.functional.dropout(x, 0.5, training=False),
    "identity module": lambda x: torch.nn.Identity()(x),
    "cat of one": lambda x: torch.cat([x]),
    "atleast_2d": lambda x: torch.atleast_2d(x),
    "where": lambda x: torch.where(x > 3, x, x),
    "set_": lambda x: torch.empty(0, device=x.device).set_(x),
    "unflatten": lambda x: x.unflatten(1, (2, 3)),
    "mT": lambda x: x.mT,
    "swapaxes": lambda x: x.swapaxes(0, 1),
    "pixel_shuffle": lambda x: torch.nn.functional.pixel_shuffle(x.view(4, 3, 2), 2),
    "empty slice": lambda x: x[:0],
    "copy_ with broadcast": lambda x: x.copy_(x[0].clone()),
    "linear of one row": lambda x: torch.nn.functional.linear(x[0], x),
}  # fmt: skip


def observe(function: Function, x: torch.Tensor) -> list[Any]:
    """Everything that a program can tell: the bytes on both sides after a write on each side."""
    y = function(x)
    seen: list[Any] = [tuple(y.shape), y.stride(), y.dtype]
    try:
        y.detach().mul_(2)
    except RuntimeError as error:  # several elements in one place
        seen.append(str(error))
    seen += [x.tolist(), y.tolist()]
    x.detach().add_(100)
    return [*seen, x.tolist(), y.tolist()]


def both(name: str, mode: str) -> tuple[list[Any], list[Any]]:
    def work(device: str) -> list[Any]:
        with MODES[mode]():
            x = torch.arange(24, dtype=torch.float32).view(4, 6).to(device)
            return observe(FUNCTIONS[name], x)

    expected = work("cpu")
    with VirtualGPU(LAZY):
        return work("cuda"), expected


def all_of(mode: str) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for name in FUNCTIONS:
        try:
            result[name] = both(name, mode)
        except Exception as error:
            result[name] = (repr(error), None)
    return result


@pytest.fixture(scope="module")
def observed() -> dict[str, dict[str, Any]]:
    return {mode: in_child(partial(all_of, mode)) for mode in MODES}


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_aliases_as_on_the_cpu(observed: dict[str, dict[str, Any]], name: str, mode: str) -> None:
    got, expected = observed[mode][name]
    assert got == expected
