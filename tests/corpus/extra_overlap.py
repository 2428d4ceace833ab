"""Kernels that overlap: no order of whole kernels shows these races."""

import torch

N = 64


def right() -> torch.Tensor:
    return torch.full((N,), 2.0)


def right_flags() -> torch.Tensor:
    return torch.tensor(1.0)


def right_copy() -> bool:
    return True


def two_adds() -> torch.Tensor:
    """In either order the sum is right; both may read first, and an update is lost."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.zeros(N, device="cuda")  # buffer
    side.wait_stream(main)  # edge: any
    x.add_(1)  # first
    with torch.cuda.stream(side):
        x.add_(1)  # second
    main.wait_stream(side)  # edge: any
    return x


def two_adds_in_order() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.zeros(N, device="cuda")
    x.add_(1)
    side.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(side):
        x.add_(1)
    main.wait_stream(side)  # edge: load-bearing
    return x


def torn_copy() -> bool:
    """The copy may be of the old values or of the new ones, but not of some of each."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x = torch.zeros(N, device="cuda")  # buffer
    y = torch.empty(N, device="cuda")
    side.wait_stream(main)  # edge: any
    x.fill_(1)  # first
    with torch.cuda.stream(side):
        y.copy_(x)  # second
    main.wait_stream(side)  # edge: any
    return bool((y == y[0]).all().item())


def copy_in_order() -> bool:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x, y = torch.zeros(N, device="cuda"), torch.zeros(N, device="cuda")
    x.fill_(1)
    side.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(side):
        y.copy_(x)
    main.wait_stream(side)  # edge: load-bearing
    return bool((y == y[0]).all().item())


def one_of_two_flags() -> torch.Tensor:
    """Either flag would do: no byte shows that one of the joins is missing."""
    main, one, two = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    found = torch.zeros(2, device="cuda")
    one.wait_stream(main)  # edge to-one: masked
    two.wait_stream(main)  # edge to-two: masked
    with torch.cuda.stream(one):
        found[0].fill_(1)
    with torch.cuda.stream(two):
        found[1].fill_(1)
    main.wait_stream(one)  # edge one: masked
    main.wait_stream(two)  # edge two: masked
    return found.max()


def four_ways() -> torch.Tensor:
    """Each of four calls alone would be enough."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x, y = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    side.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.add(x, 1, out=y)
    side.synchronize()  # edge stream: masked
    torch.cuda.synchronize()  # edge device: masked
    main.wait_stream(side)  # edge join: masked
    torch.cuda.default_stream().wait_stream(side)  # edge again: masked
    return y.clone()
