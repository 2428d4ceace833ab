"""Rule 13: a backward node runs on the stream of its forward node, with the waits of the engine."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from tests.conformance.device import Device
from tests.conformance.values import on_device, value


class Spy(torch.autograd.Function):
    """Doubles, and notes the streams that forward and backward ran on."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, seen: list[torch.cuda.Stream]) -> Tensor:
        ctx.seen = seen
        seen.append(torch.cuda.current_stream())
        return x * 2

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        ctx.seen.append(torch.cuda.current_stream())
        return grads[0] * 2, None


def warm_up() -> None:
    x = on_device(1).requires_grad_()
    (x * 2 * x).sum().backward()
    torch.cuda.synchronize()


def test_backward_runs_on_the_stream_of_forward(gpu: Device) -> None:
    side, seen = torch.cuda.Stream(), list[torch.cuda.Stream]()
    x = on_device(1).requires_grad_()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = Spy.apply(x, seen).sum()
    y.backward()
    assert seen == [side, side]
    assert value(x.grad) == 2


def test_backward_in_a_stream_context_still_runs_on_the_stream_of_forward(gpu: Device) -> None:
    side, other, seen = torch.cuda.Stream(), torch.cuda.Stream(), list[torch.cuda.Stream]()
    x = on_device(1).requires_grad_()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = Spy.apply(x, seen).sum()
    other.wait_stream(side)
    with torch.cuda.stream(other):
        y.backward()
        assert torch.cuda.current_stream() == other
    assert seen == [side, side]


def test_backward_on_two_streams(gpu: Device) -> None:
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    first, second = list[torch.cuda.Stream](), list[torch.cuda.Stream]()
    x = on_device(1).requires_grad_()
    one.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(one):
        y = Spy.apply(x, first)
    two.wait_stream(one)
    with torch.cuda.stream(two):
        z = Spy.apply(y, second).sum()
    z.backward()
    assert (first, second) == ([one, one], [two, two])
    assert value(x.grad) == 4


def test_the_current_stream_is_restored_after_backward(gpu: Device) -> None:
    side = torch.cuda.Stream()
    x = on_device(1).requires_grad_()
    with torch.cuda.stream(side):
        y = (x * 2).sum()
    y.backward()
    assert torch.cuda.current_stream() == torch.cuda.default_stream()


def test_built_in_nodes_enqueue_on_the_stream_of_forward(gpu: Device) -> None:
    warm_up()
    side, weight = torch.cuda.Stream(), on_device(3)
    x = on_device(1).requires_grad_()
    torch.cuda.synchronize()
    with torch.cuda.stream(side):
        y = x * weight
    torch.cuda.synchronize()
    with gpu.hold(side):
        y.backward(torch.ones_like(y))
        with torch.cuda.stream(other := torch.cuda.Stream()):
            weight.fill_(5)  # the node has not read it: it is behind the gate
        other.synchronize()
    assert value(x.grad) == 5


def test_the_engine_orders_a_node_after_its_producer(gpu: Device) -> None:
    warm_up()
    side = torch.cuda.Stream()
    x, scale = on_device(1).requires_grad_(), on_device(1)
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
    torch.cuda.current_stream().wait_stream(side)
    z = y * scale  # its backward runs on the default stream and feeds the side stream
    torch.cuda.synchronize()
    with gpu.hold(torch.cuda.default_stream()) as gate:
        scale.data.fill_(7)
        z.backward(torch.ones_like(z))
        assert gpu.waits(gate, side.synchronize)
    assert value(x.grad) == 14


def test_the_calling_stream_is_ordered_after_backward(gpu: Device) -> None:
    warm_up()
    side, out = torch.cuda.Stream(), on_device(0)
    x = on_device(1).requires_grad_()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    with gpu.hold(side) as gate:
        y.backward(torch.ones_like(y))
        out.copy_(x.grad)
        assert gpu.waits(gate, torch.cuda.default_stream().synchronize)
    assert value(out) == 2


def test_backward_does_not_block_the_host(gpu: Device) -> None:
    warm_up()
    side = torch.cuda.Stream()
    x = on_device(1).requires_grad_()
    with torch.cuda.stream(side):
        y = x * 2
        ones = torch.ones_like(y)
    torch.autograd.grad(y, x, ones, retain_graph=True)  # the engine's thread begins with a context
    torch.cuda.synchronize()
    with gpu.hold(side) as gate:
        assert not gpu.waits(gate, lambda: y.backward(ones))
    assert value(x.grad) == 2


def test_hooks_run_on_the_stream_of_their_node(gpu: Device) -> None:
    side, seen = torch.cuda.Stream(), list[torch.cuda.Stream]()
    x = on_device(1).requires_grad_()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x * 2
        y.register_hook(lambda grad: seen.append(torch.cuda.current_stream()))
        z = y.sum()
    z.backward()
    assert seen == [side]


def test_gradients_accumulate(gpu: Device) -> None:
    x = on_device(1).requires_grad_()
    for _ in range(3):
        (x * 2).sum().backward()
    assert value(x.grad) == 6


def test_autograd_grad_runs_on_the_stream_of_forward(gpu: Device) -> None:
    side, seen = torch.cuda.Stream(), list[torch.cuda.Stream]()
    x = on_device(1).requires_grad_()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = Spy.apply(x, seen).sum()
    torch.cuda.current_stream().wait_stream(side)
    (grad,) = torch.autograd.grad(y, x)
    assert seen == [side, side]
    assert value(grad) == 2


def test_a_saved_tensor_is_read_when_backward_executes(gpu: Device) -> None:
    warm_up()
    side = torch.cuda.Stream()
    x, weight = on_device(1).requires_grad_(), on_device(3)
    y = x * weight
    torch.cuda.synchronize()
    with gpu.hold(torch.cuda.default_stream()):
        y.backward(torch.ones_like(y))
        with torch.cuda.stream(side):
            weight.data.fill_(4)
        side.synchronize()
    assert value(x.grad) == 4
