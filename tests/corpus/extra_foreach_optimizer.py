"""A foreach optimizer steps on a side stream between two gradient computations."""

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> list[torch.Tensor]:
    # gradients 1, then 2; momentum 0.5; rate 0.5: 4 - 0.5 * 1 - 0.5 * (0.5 + 2)
    return [torch.full((N,), 2.25), torch.full((2, N), 2.25)]


def joined() -> list[torch.Tensor]:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    weights = [
        torch.nn.Parameter(torch.full((N,), 4.0, device="cuda")),
        torch.nn.Parameter(torch.full((2, N), 4.0, device="cuda")),
    ]
    for weight in weights:
        weight.grad = torch.empty_like(weight)
    optimizer = torch.optim.SGD(weights, lr=0.5, momentum=0.5, foreach=True)
    for i in range(STEPS):
        for weight in weights:
            assert weight.grad is not None
            weight.grad.fill_(i + 1)
        side.wait_stream(main)  # edge: load-bearing
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            optimizer.step()
        main.wait_stream(side)  # edge: load-bearing
    return [weight.detach() for weight in weights]


def one_way() -> list[torch.Tensor]:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    weights = [
        torch.nn.Parameter(torch.full((N,), 4.0, device="cuda")),
        torch.nn.Parameter(torch.full((2, N), 4.0, device="cuda")),
    ]
    for weight in weights:
        weight.grad = torch.empty_like(weight)  # buffer
    optimizer = torch.optim.SGD(weights, lr=0.5, momentum=0.5, foreach=True)
    for i in range(STEPS):
        for weight in weights:
            assert weight.grad is not None
            weight.grad.fill_(i + 1)  # second
        side.wait_stream(main)  # edge: load-bearing
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            optimizer.step()  # first
    side.synchronize()  # edge: load-bearing
    return [weight.detach() for weight in weights]
