"""What the virtual GPU cannot run raises one clear error, and the run remembers it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from redgreen.schedule import LAZY
from redgreen.virtual import VirtualGPU
from tests.child import in_child, preload


def custom(kind: str) -> Callable[[Tensor], Any]:
    """A custom operator that cannot run, or can."""
    devices = {"only cpu": "cpu", "only cuda": "cuda", "both": ("cpu", "cuda")}.get(kind)

    def double(x: Tensor) -> Tensor:
        return x * 2

    op = torch.library.custom_op(
        f"redgreen_test::{kind.replace(' ', '_')}", double, mutates_args=(), device_types=devices
    )
    if kind == "with a fake":
        op.register_fake(torch.empty_like)
    return op


def attempt(make: Callable[[], Any]) -> tuple[str, list[str]]:
    """The error's text, swallowed by the program, and what the trace says was refused."""

    def work() -> tuple[str, list[str]]:
        with VirtualGPU(LAZY) as virtual:
            text = "no error"
            try:
                make()
                torch.cuda.synchronize()
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
            return text, virtual.finish().trace.refusals

    preload()
    return in_child(work)


@pytest.mark.parametrize("kind", ["only cpu", "only cuda"])
def test_a_custom_operator_without_a_kernel(kind: str) -> None:
    text, refusals = attempt(lambda: custom(kind)(torch.ones(3, device="cuda")))
    name = kind.replace(" ", "_")
    assert name in text and "cannot run on the virtual GPU" in text
    assert len(refusals) == 1 and name in refusals[0]


@pytest.mark.parametrize("kind", ["anywhere", "both", "with a fake"])
def test_a_custom_operator_with_a_kernel_runs(kind: str) -> None:
    def subject() -> None:
        assert custom(kind)(torch.ones(3, device="cuda")).tolist() == [2, 2, 2]

    assert attempt(subject) == ("no error", [])


def moved_while_a_graph_holds_it() -> None:
    layer = nn.Linear(2, 2).cuda()
    out = layer(torch.ones(1, 2, device="cuda", requires_grad=True))  # saves the weight
    layer.cpu()
    out.sum().backward()


@pytest.mark.parametrize(
    ("subject", "words"),
    [
        (lambda: torch.eye(2, device="cuda").to_sparse(), "sparse"),
        (lambda: torch.eye(2, device="cuda").to_sparse_csr(), "sparse"),
        (moved_while_a_graph_holds_it, "an autograd graph holds it"),
        (lambda: torch.ones(2, pin_memory=True).share_memory_(), "pinned"),
        (lambda: torch.cuda.Event(interprocess=True).ipc_handle(), "between processes"),
    ],
)
def test_other_refusals(subject: Callable[[], Any], words: str) -> None:
    text, refusals = attempt(subject)
    assert words in text
    assert len(refusals) == 1, refusals


@pytest.mark.parametrize(
    "subject",
    [
        lambda: torch.ones(3, device="cuda") + torch.ones(4, device="cuda"),
        lambda: torch.ones(3, device="cuda") + torch.ones(3),
        lambda: torch.linalg.inv(torch.zeros(2, 2, device="cuda")),
        lambda: torch.ones(3, device="cuda").view(2),
    ],
)
def test_the_program_s_own_errors_are_no_refusals(subject: Callable[[], Any]) -> None:
    text, refusals = attempt(subject)
    assert text != "no error" and refusals == []
