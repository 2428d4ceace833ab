"""Autocast: the operators, types, casts and values of CUDA's autocast."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.nn import functional as F

from redgreen.virtual import VirtualGPU, autocast
from tests.child import in_child

HEADER = Path(torch.__file__).parent / "include" / "ATen" / "autocast_mode.h"
LOW = torch.bfloat16


def on_gpu(subject: Callable[[], Any]) -> Any:
    def work() -> Any:
        with VirtualGPU():
            return subject()

    return in_child(work)


# -- the lists -------------------------------------------------------------------------------------


def header_list(macro: str) -> set[str]:
    text = re.search(rf"#define {macro}\(_\)(.*?)\n\n", HEADER.read_text(), re.S)
    assert text is not None
    pairs = re.findall(r"_\((\w+)(?:, (\w+))?\)", text.group(1))
    return {name + (f".{overload}" if overload else "") for name, overload in pairs}


@pytest.mark.parametrize(
    ("macro", "ours"),
    [
        ("AT_FORALL_LOWER_PRECISION_FP", autocast.LOWER),
        ("AT_FORALL_FP32", autocast.FLOAT32),
        ("AT_FORALL_FP32_SET_OPT_DTYPE", autocast.FLOAT32_RESULT),
        ("AT_FORALL_PROMOTE", autocast.PROMOTE),
    ],
)
def test_lists_are_those_of_this_torch(macro: str, ours: tuple[str, ...]) -> None:
    assert set(ours) == header_list(macro)
    assert len(ours) == len(set(ours))


# -- types and values ------------------------------------------------------------------------------

x, w, v = torch.randn(4, 6), torch.randn(5, 6), torch.randn(6)
image, kernel = torch.randn(2, 3, 8, 8), torch.randn(4, 3, 3, 3)

# (operator, its arguments, the same with explicit casts on the CPU)
CASES: dict[str, tuple[Callable[..., Any], tuple[Any, ...], torch.dtype, torch.dtype]] = {
    # name: operator, arguments, what the arguments are cast to, what comes out
    "linear": (F.linear, (x, w), LOW, LOW),
    "matmul": (torch.matmul, (x, w.t()), LOW, LOW),
    "mv": (torch.mv, (x, v), LOW, LOW),
    "conv2d": (F.conv2d, (image, kernel), LOW, LOW),
    "bmm": (torch.bmm, (image[0], image[0].mT), LOW, LOW),
    "prelu": (F.prelu, (x, v), LOW, LOW),
    "sdpa": (F.scaled_dot_product_attention, (image, image, image), LOW, LOW),
    "exp": (torch.exp, (x.to(LOW),), torch.float32, torch.float32),
    "pow": (torch.pow, (x.to(LOW), 2), torch.float32, torch.float32),
    "layer_norm": (F.layer_norm, (x.to(LOW), (6,)), torch.float32, torch.float32),
    "mse": (F.mse_loss, (x.to(LOW), x), torch.float32, torch.float32),
    "bce": (
        F.binary_cross_entropy_with_logits,
        (x.to(LOW), x.sigmoid().to(LOW)),
        torch.float32,
        torch.float32,
    ),
    "dot": (torch.dot, (v, v.to(LOW)), torch.float32, torch.float32),
    "dot low": (torch.dot, (v.to(LOW), v.to(LOW)), LOW, LOW),
    "relu": (torch.relu, (x,), torch.float32, torch.float32),
    "relu low": (torch.relu, (x.to(LOW),), LOW, LOW),
    "add": (torch.add, (x.to(LOW), x), torch.float32, torch.float32),
    "double": (torch.matmul, (x.double(), w.t().double()), torch.float64, torch.float64),
}


def moved(value: Any, to: Any) -> Any:
    return value.to(to) if isinstance(value, torch.Tensor) else value


def raw(tensor: torch.Tensor) -> list[int]:
    values: list[int] = tensor.reshape(-1).view(torch.uint8).tolist()
    return values


MODES: dict[str, Callable[[], Any]] = {
    "grad": torch.enable_grad,
    "no_grad": torch.no_grad,
    "inference": torch.inference_mode,
}


@pytest.fixture(scope="module")
def results() -> dict[str, dict[str, Any]]:
    """By mode and case: what autocast makes of it, or the error."""

    def one(op: Callable[..., Any], args: tuple[Any, ...], mode: str) -> Any:
        there = [moved(a, "cuda") for a in args]
        try:
            with MODES[mode](), torch.autocast("cuda", dtype=LOW):
                return op(*there).detach().cpu()
        except Exception as error:
            return repr(error)

    return {
        mode: on_gpu(lambda mode=mode: {n: one(c[0], c[1], mode) for n, c in CASES.items()})
        for mode in MODES
    }


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", MODES)
def test_values_are_those_of_explicit_casts(
    results: dict[str, dict[str, Any]], name: str, mode: str
) -> None:
    op, args, cast, out = CASES[name]
    result = results[mode][name]
    assert isinstance(result, torch.Tensor), result
    assert result.dtype == out
    expected = op(*(moved(a, cast) for a in args))
    assert raw(result) == raw(expected)


@pytest.mark.parametrize("name", ["softmax", "sum", "cumsum", "norm"])
def test_results_in_float32(name: str) -> None:
    """These keep their input and are asked for another result type."""
    low = x.to(LOW)
    ops: dict[str, Callable[..., torch.Tensor]] = {
        "softmax": lambda t, **k: torch.softmax(t, 1, **k),
        "sum": lambda t, **k: t.sum(1, **k),
        "cumsum": lambda t, **k: t.cumsum(1, **k),
        "norm": lambda t, **k: torch.linalg.vector_norm(t, 2, 1, **k),
    }
    op = ops[name]

    def subject() -> torch.Tensor:
        with torch.autocast("cuda", dtype=LOW):
            return op(low.cuda()).cpu()

    assert torch.equal(on_gpu(subject), op(low, dtype=torch.float32))


def test_binary_cross_entropy_is_refused() -> None:
    def subject() -> None:
        with torch.autocast("cuda"):
            F.binary_cross_entropy(x.sigmoid().cuda(), x.sigmoid().cuda())

    with pytest.raises(AssertionError, match="unsafe to autocast"):
        on_gpu(subject)


# -- state -----------------------------------------------------------------------------------------


def test_nesting_and_state() -> None:
    def subject() -> list[Any]:
        a, b = x.cuda(), w.t().cuda()
        seen: list[Any] = [torch.is_autocast_enabled("cuda"), (a @ b).dtype]
        with torch.amp.autocast("cuda"):
            seen += [torch.is_autocast_enabled(), torch.get_autocast_dtype("cuda"), (a @ b).dtype]
            with torch.autocast("cuda", enabled=False):
                seen += [torch.is_autocast_enabled(), (a @ b).dtype]
            with torch.autocast("cuda", dtype=LOW):
                seen += [torch.get_autocast_gpu_dtype(), (a @ b).dtype]
            seen.append((a @ b).dtype)
        seen.append((a @ b).dtype)
        with torch.autocast("cpu", dtype=LOW):
            seen.append((a @ b).dtype)
        return seen

    full, half = torch.float32, torch.float16
    assert on_gpu(subject) == [
        False, full, True, half, half, False, full, LOW, LOW, half, full, full,
    ]  # fmt: skip


def test_the_device_is_no_business_of_cpu_tensors() -> None:
    def subject() -> torch.dtype:
        with torch.autocast("cuda"):
            return (x @ w.t()).dtype

    assert on_gpu(subject) == torch.float32


@pytest.mark.parametrize(("cached", "casts"), [(True, 1), (False, 2)])
def test_a_weight_is_cast_once_in_a_block(cached: bool, casts: int) -> None:
    def subject() -> int:
        with VirtualGPU() as virtual:
            a = x.cuda().to(LOW)
            weight = torch.nn.Parameter(w.cuda())
            copies = lambda: sum(s.op == "aten.copy_" for s in steps())  # noqa: E731
            steps = lambda: virtual.gpu.machine.works  # noqa: E731
            before = copies()
            with torch.autocast("cuda", dtype=LOW, cache_enabled=cached):
                F.linear(a, weight)
                F.linear(a, weight)
            inside = copies() - before
            with torch.autocast("cuda", dtype=LOW, cache_enabled=cached):
                F.linear(a, weight)
            assert copies() - before - inside == 1  # the cache is gone
            return inside

    assert in_child(subject) == casts


def test_gradients_come_back_in_the_type_of_the_parameter() -> None:
    def subject() -> list[Any]:
        weight = torch.nn.Parameter(w.cuda())
        with torch.autocast("cuda", dtype=LOW):
            out = F.linear(x.cuda(), weight)
            loss = out.float().pow(2).sum()
        loss.backward()
        return [weight.grad.dtype, weight.grad.cpu()]

    weight = torch.nn.Parameter(w.clone())
    F.linear(x.to(LOW), weight.to(LOW)).float().pow(2).sum().backward()
    dtype, grad = on_gpu(subject)
    assert dtype == torch.float32
    assert torch.equal(grad, weight.grad)


def test_custom_functions_are_cast_and_run_without_autocast() -> None:
    class Double(torch.autograd.Function):
        @staticmethod
        @torch.amp.custom_fwd(device_type="cuda", cast_inputs=torch.float32)
        def forward(ctx: Any, a: torch.Tensor) -> torch.Tensor:
            seen.append((a.dtype, torch.is_autocast_enabled("cuda")))
            return a @ a.mT

        @staticmethod
        @torch.amp.custom_bwd(device_type="cuda")
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            seen.append((grad.dtype, torch.is_autocast_enabled("cuda")))
            return torch.ones(4, 6, device="cuda")

    seen: list[Any] = []

    def subject() -> list[Any]:
        a = x.to(LOW).cuda().requires_grad_()
        with torch.autocast("cuda", dtype=LOW):
            out = Double.apply(a)
        out.sum().backward()
        return seen

    assert on_gpu(subject) == [(torch.float32, False), (torch.float32, False)]


def test_grad_scaler() -> None:
    def train(device: str) -> list[Any]:
        torch.manual_seed(0)
        model = torch.nn.Linear(6, 3).to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        scaler = torch.amp.GradScaler(device, init_scale=4.0, growth_interval=2)
        for step in range(3):
            loss = model(x.to(device)).pow(2).mean()
            if step == 1:
                loss = loss * float("inf")
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        return [scaler.get_scale(), model.weight.detach().cpu().tolist()]

    assert on_gpu(lambda: train("cuda")) == in_child(lambda: train("cpu"))
