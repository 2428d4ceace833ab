"""as_strided columns of one storage: interleaved and disjoint, and with one element in common."""

import torch

SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.tensor([1.0, 2.0] * 4)


def interleaved() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.empty(8, device="cuda")
    even, odd = x.as_strided((4,), (2,), 0), x.as_strided((4,), (2,), 1)
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        even.fill_(1)
    odd.fill_(2)
    main.wait_stream(side)  # edge: load-bearing
    return x


def crossing() -> torch.Tensor:
    """Strides two and three meet at elements 0 and 6."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.zeros(8, device="cuda")  # buffer
    twos, threes = x.as_strided((4,), (2,), 0), x.as_strided((3,), (3,), 0)
    side.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        twos.fill_(1)  # first
    threes.fill_(2)  # second
    main.wait_stream(side)  # edge: load-bearing
    return x
