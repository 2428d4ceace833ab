"""Rule 13: streams and implicit waits of a backward pass, against what CUDA's engine does."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch

from redgreen.races import Conflict, analyse
from redgreen.schedule import LAZY, SERIAL, Schedule
from redgreen.trace import Kind, Trace
from redgreen.virtual import VirtualGPU
from tests.child import in_child

LAST = Schedule(policy="last", stream="stream 1")
FIRST = Schedule(policy="first", stream="stream 1")


def run(subject: Callable[[], Any], schedule: Schedule = SERIAL) -> tuple[Any, Trace]:
    with VirtualGPU(schedule) as virtual:
        result = subject()
        if isinstance(result, torch.Tensor):
            result = result.detach().cpu().tolist()
        return result, virtual.finish().trace


def races(trace: Trace, drop: str | None = None) -> list[Conflict]:
    """Races of the trace, with the edges of one kind taken out."""
    gone = {i for i, e in enumerate(trace.edges) if e.kind == drop}
    assert drop is None or gone
    return analyse(trace, gone).races


def streams_of(trace: Trace, op: str) -> list[str]:
    """The streams on which steps of this name ran, in issue order."""
    return [trace.agents[s.agent].name for s in trace.steps if s.op.startswith(f"aten.{op}")]


def check(subject: Callable[[], Any], *, racy: bool, drop: str | None = None) -> Trace:
    """All schedules give one result if the trace has no race; ``drop`` shows that it can have."""

    def work() -> tuple[list[Any], Trace]:
        runs = [run(subject, s) for s in (SERIAL, LAZY, FIRST, LAST)]
        return [value for value, _ in runs], runs[0][1]

    values, trace = in_child(work)
    assert bool(races(trace)) == racy
    if not racy:
        assert all(v == values[0] for v in values), values
    if drop is not None:
        assert races(trace, drop)
    return trace


def leaf(*values: float) -> torch.Tensor:
    return torch.tensor(values, device="cuda", requires_grad=True)


# -- a forward on a side stream --------------------------------------------------------------------


def train(join: bool, steps: int = 2) -> torch.Tensor:
    """Forward on a side stream, backward and optimizer on the default stream."""
    w = leaf(1.0, 2.0)
    optimizer = torch.optim.SGD([w], lr=0.5)
    side = torch.cuda.Stream()
    for _ in range(steps):
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            loss = (w * w).sum()
        if join:
            torch.cuda.current_stream().wait_stream(side)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return w


def test_backward_of_a_joined_side_stream_is_ordered() -> None:
    check(lambda: train(True), racy=False, drop="wait_stream")


def test_the_engine_orders_the_roots_after_the_caller_and_the_caller_after_the_leaves() -> None:
    """Without the join of the forward, backward itself is ordered: the caller waits for leaves."""
    check(lambda: train(False), racy=False)


def read_loss(join: bool) -> float:
    w = leaf(1.0, 2.0)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = w * w
    if join:
        torch.cuda.current_stream().wait_stream(side)
    total = y.detach().sum()
    y.sum().backward()
    return total.item()


def test_forward_results_need_the_join() -> None:
    check(lambda: read_loss(True), racy=False)
    check(lambda: read_loss(False), racy=True)


def test_nodes_run_on_the_stream_of_their_forward() -> None:
    def subject() -> None:
        w = leaf(1.0, 2.0)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a = w.sigmoid()
        torch.cuda.current_stream().wait_stream(side)
        a.tanh().sum().backward()

    trace = check(subject, racy=False)
    assert streams_of(trace, "tanh_backward") == ["stream 0"]
    assert streams_of(trace, "sigmoid_backward") == ["stream 1"]


def test_waits_of_the_engine_cannot_be_taken_out() -> None:
    """With every edge of the program gone, backward and what follows it are still in order."""
    trace = check(lambda: train(True, steps=1), racy=False)
    start = next(s.index for s in trace.steps if "ones_like" in s.op)
    left = analyse(trace, set(range(len(trace.edges)))).races
    assert not [r for r in left if r.first >= start]
    assert [s for s in trace.steps if s.kind is Kind.ACQUIRE and not s.edges and s.index > start]


# -- gradients that meet ---------------------------------------------------------------------------


def two_producers() -> torch.Tensor:
    w = leaf(1.0, 2.0, 3.0)
    left, right = torch.cuda.Stream(), torch.cuda.Stream()
    x = w * 2
    for s in (left, right):
        s.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(left):
        a = x.sigmoid()
    with torch.cuda.stream(right):
        b = x.tanh()
    torch.cuda.current_stream().wait_stream(left)
    torch.cuda.current_stream().wait_stream(right)
    (a + b).sum().backward()
    return w.grad


def test_gradients_are_summed_on_the_consumer() -> None:
    trace = check(two_producers, racy=False)
    assert streams_of(trace, "add.Tensor") == ["stream 0", "stream 0"]  # forward, and the sum
    assert streams_of(trace, "sigmoid_backward") == ["stream 1"]
    assert streams_of(trace, "tanh_backward") == ["stream 2"]


def test_nodes_without_an_operator_pass_the_order_on() -> None:
    """AddBackward hands its gradient on untouched: its consumers still come after its producer."""

    def subject() -> torch.Tensor:
        w, v = leaf(1.0, 2.0), leaf(3.0, 4.0)
        one, two, three = (torch.cuda.Stream() for _ in range(3))
        one.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(one):
            a = w.sigmoid()
        two.wait_stream(one)
        with torch.cuda.stream(two):
            b = a + v
        three.wait_stream(two)
        with torch.cuda.stream(three):
            c = b.tanh().sum()
        torch.cuda.current_stream().wait_stream(three)
        c.backward()
        return w.grad + v.grad

    check(subject, racy=False)


# -- ways into the engine --------------------------------------------------------------------------


def test_grad_of_inputs() -> None:
    def subject() -> torch.Tensor:
        w = leaf(1.0, 2.0)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a = w.sigmoid()
            b = a.tanh()
        torch.cuda.current_stream().wait_stream(side)
        ga, gw = torch.autograd.grad(b.sum(), (a, w))
        return ga + gw

    check(subject, racy=False)


def test_double_backward() -> None:
    def subject() -> torch.Tensor:
        w = leaf(1.0, 2.0)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a = w.sigmoid()
        torch.cuda.current_stream().wait_stream(side)
        (g,) = torch.autograd.grad(a.sum(), w, create_graph=True)
        g.pow(2).sum().backward()
        return w.grad

    check(subject, racy=False)


def test_retained_graph_runs_twice_and_accumulates() -> None:
    def subject() -> torch.Tensor:
        w = leaf(1.0, 2.0)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a = (w * w).sum()
        torch.cuda.current_stream().wait_stream(side)
        a.backward(retain_graph=True)
        a.backward()
        return w.grad

    check(subject, racy=False)


def test_backward_called_in_a_side_stream() -> None:
    def subject(join: bool) -> torch.Tensor:
        w = leaf(1.0, 2.0)
        a = (w * w).sum()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a.backward()
            w.grad.mul_(2)
        if join:
            torch.cuda.current_stream().wait_stream(side)
        return w.grad + 0

    check(lambda: subject(True), racy=False)
    check(lambda: subject(False), racy=True)


def test_backward_in_another_thread_runs_on_the_streams_of_the_forward() -> None:
    def subject() -> torch.Tensor:
        w = leaf(1.0, 2.0)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a = w.sigmoid().sum()
        torch.cuda.synchronize()
        thread = threading.Thread(target=a.backward)
        thread.start()
        thread.join()
        torch.cuda.synchronize()
        return w.grad

    def work() -> Trace:
        return run(subject)[1]

    assert streams_of(in_child(work), "sigmoid_backward") == ["stream 1"]


# -- the program's own code inside of backward -----------------------------------------------------


class OnSideStream(torch.autograd.Function):
    join = True

    @staticmethod
    def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
        return x * 2

    @staticmethod
    def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            result = grad * 2
        if OnSideStream.join:
            torch.cuda.current_stream().wait_stream(side)
        return result


@pytest.mark.parametrize("join", [True, False])
def test_custom_function_with_a_stream_of_its_own(join: bool) -> None:
    def subject() -> torch.Tensor:
        OnSideStream.join = join
        w = leaf(1.0, 2.0)
        OnSideStream.apply(w * 3).sum().backward()
        return w.grad

    check(subject, racy=not join)


def test_tensor_hook_runs_on_the_stream_of_its_node() -> None:
    seen: list[int] = []

    def subject() -> list[int]:
        w = leaf(1.0, 2.0)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a = w.sigmoid()
        torch.cuda.current_stream().wait_stream(side)
        b = a.tanh()

        def hook(grad: torch.Tensor) -> None:
            seen.append(torch.cuda.current_stream().stream_id)

        a.register_hook(hook)
        b.register_hook(hook)
        w.register_hook(hook)
        b.sum().backward()
        seen.append(torch.cuda.current_stream().stream_id)
        return seen

    assert in_child(lambda: run(subject)[0]) == [0, 1, 1, 0]


@pytest.mark.parametrize("join", [True, False])
def test_gradient_reduced_on_a_side_stream(join: bool) -> None:
    """As data parallelism does it: a hook after accumulation enqueues on a side stream."""

    def subject() -> torch.Tensor:
        w = leaf(1.0, 2.0)
        side = torch.cuda.Stream()

        def reduce(p: torch.Tensor) -> None:
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                p.grad.mul_(0.5)
            if join:
                torch.autograd.Variable._execution_engine.queue_callback(
                    lambda: torch.cuda.current_stream().wait_stream(side)
                )

        w.register_post_accumulate_grad_hook(reduce)
        (w * w).sum().backward()
        return w.grad + 0

    check(subject, racy=not join)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_recomputes_on_the_stream_of_its_node(reentrant: bool) -> None:
    def subject() -> torch.Tensor:
        w = leaf(1.0, 2.0)
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            a = torch.utils.checkpoint.checkpoint(
                lambda x: x.sigmoid().tanh(), w, use_reentrant=reentrant
            )
        torch.cuda.current_stream().wait_stream(side)
        a.sum().backward()
        return w.grad

    trace = check(subject, racy=False)
    assert streams_of(trace, "sigmoid.")[-1] == "stream 1"
    assert streams_of(trace, "sigmoid_backward") == ["stream 1"]


# -- errors ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["hook", "custom", "item", "post"])
@pytest.mark.parametrize("streams", [1, 2])
def test_an_exception_leaves_backward_as_one(where: str, streams: int) -> None:
    class Raises(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: torch.Tensor) -> torch.Tensor:
            return x * 1

        @staticmethod
        def backward(ctx: Any, grad: torch.Tensor) -> torch.Tensor:
            raise ZeroDivisionError

    def bad(*_: Any) -> None:
        raise ZeroDivisionError

    def bad_index(*_: Any) -> None:
        torch.arange(3, device="cuda")[torch.tensor([7], device="cuda")].sum().item()

    def subject() -> str:
        w = leaf(1.0, 2.0)
        x = w * 2
        side = torch.cuda.Stream() if streams == 2 else torch.cuda.current_stream()
        side.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(side):
            y = Raises.apply(x) if where == "custom" else x.sigmoid()
        torch.cuda.current_stream().wait_stream(side)
        if where == "post":
            w.register_post_accumulate_grad_hook(bad)
        if where == "hook":
            x.register_hook(bad)
        if where == "item":
            x.register_hook(bad_index)
        try:
            y.sum().backward()
        except Exception as error:
            return type(error).__name__
        return "nothing"

    def work() -> str:
        with VirtualGPU():
            return subject()

    assert in_child(work) == ("AcceleratorError" if where == "item" else "ZeroDivisionError")
