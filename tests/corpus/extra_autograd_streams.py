"""Backward runs each node on the stream of its forward, and the engine joins the streams.

``hooks`` reduces gradients on a side stream from hooks, as data-parallel wrappers do.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> list[torch.Tensor]:
    return [torch.full((N,), 3.0), torch.tensor(2.0 * 3 * N)]


def right_hooks() -> list[torch.Tensor]:
    return [torch.full((N,), 1 - 0.5 * 2.0), torch.full((N,), 1 - 0.5 * 4.0)]


def side_forward() -> list[torch.Tensor]:
    """No join is written: after backward the current stream comes after those of the leaves."""
    side = torch.cuda.Stream()
    x = torch.full((N,), 3.0, device="cuda")
    weight = torch.full((N,), 2.0, device="cuda", requires_grad=True)
    side.wait_stream(torch.cuda.current_stream())  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        loss = (weight * x).sum()
    torch.autograd.backward([loss])
    assert weight.grad is not None
    return [weight.grad, loss.detach()]


def hooks() -> list[torch.Tensor]:
    compute, reduce = torch.cuda.current_stream(), torch.cuda.Stream()
    weights = [torch.ones(N, device="cuda", requires_grad=True) for _ in range(2)]
    inputs = [torch.full((N,), 2.0 * (i + 1), device="cuda") for i in range(2)]

    def reduce_gradient(weight: torch.Tensor) -> None:
        assert weight.grad is not None
        reduce.wait_stream(torch.cuda.current_stream())  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            weight.grad.mul_(0.5)

    for weight in weights:
        weight.register_post_accumulate_grad_hook(reduce_gradient)
    sum((w * x).sum() for w, x in zip(weights, inputs, strict=True)).backward()
    compute.wait_stream(reduce)  # edge: load-bearing
    with torch.no_grad():
        for weight in weights:
            weight.sub_(weight.grad)
    return [weight.detach() for weight in weights]


def hooks_not_joined() -> list[torch.Tensor]:
    reduce = torch.cuda.Stream()
    weights = [torch.ones(N, device="cuda", requires_grad=True) for _ in range(2)]
    inputs = [torch.full((N,), 2.0 * (i + 1), device="cuda") for i in range(2)]

    def reduce_gradient(weight: torch.Tensor) -> None:
        assert weight.grad is not None
        reduce.wait_stream(torch.cuda.current_stream())  # edge: load-bearing
        with torch.cuda.stream(reduce):
            torch.cuda._sleep(SPIN)
            weight.grad.mul_(0.5)  # first

    for weight in weights:
        weight.register_post_accumulate_grad_hook(reduce_gradient)
    sum((w * x).sum() for w, x in zip(weights, inputs, strict=True)).backward()
    with torch.no_grad():
        for weight in weights:
            weight.sub_(weight.grad)  # second
    return [weight.detach() for weight in weights]
