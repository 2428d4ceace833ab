"""In-place operators on views of one storage, disjoint and overlapping."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.tensor([1.0] * 4 + [2.0] * 4)


def halves() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.zeros(N, device="cuda")
    side.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        x[:4].add_(1)
    x[4:].add_(2)
    main.wait_stream(side)  # edge: load-bearing
    return x


def overlapping() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.zeros(N, device="cuda")  # buffer
    side.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        x[:5].fill_(1)  # first
    x[4:].fill_(2)  # second
    main.wait_stream(side)  # edge: load-bearing
    return x


def reshaped() -> torch.Tensor:
    """Elements 3 and 7 through a transposed view of a view."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.zeros(N, device="cuda")  # buffer
    side.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        x.view(2, 4).t()[3].fill_(1)  # first
    x[6:].fill_(2)  # second
    main.wait_stream(side)  # edge: load-bearing
    return x
