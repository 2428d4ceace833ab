"""B49: a side stream reads the hidden state that the main stream overwrites in place.

The fix clones before the fork, and the clone needs record_stream if anything is allocated before
the join. Flattened to one stream with two lines swapped, the program is wrong on every schedule.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 13.0)  # (1 + 10) + (1 + 1)


def buggy() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    hidden = torch.empty(N, device="cuda")  # buffer
    shared, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    hidden.fill_(1)
    side.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        torch.add(hidden, 10, out=shared)  # first
    hidden.add_(1)  # second
    main.wait_stream(side)  # edge: load-bearing
    torch.add(shared, hidden, out=out)
    return out


def fixed() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    hidden, shared, out = (torch.empty(N, device="cuda") for _ in range(3))
    hidden.fill_(1)
    copy = hidden.clone()
    side.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        torch.add(copy, 10, out=shared)
    copy.record_stream(side)  # edge: load-bearing
    del copy
    hidden.add_(1)
    other = torch.empty(N, device="cuda")
    other.fill_(99)
    main.wait_stream(side)  # edge: load-bearing
    torch.add(shared, hidden, out=out)
    return out


def dead() -> torch.Tensor:
    """The first allocation after the clone's death comes after the join."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    hidden, shared, out = (torch.empty(N, device="cuda") for _ in range(3))
    hidden.fill_(1)
    copy = hidden.clone()
    side.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        torch.add(copy, 10, out=shared)
    copy.record_stream(side)  # edge: redundant
    del copy
    hidden.add_(1)
    main.wait_stream(side)  # edge: load-bearing
    other = torch.empty(N, device="cuda")
    other.fill_(99)
    torch.add(shared, hidden, out=out)
    return out


def flattened() -> torch.Tensor:
    hidden, shared, out = (torch.empty(N, device="cuda") for _ in range(3))
    hidden.fill_(1)
    hidden.add_(1)
    torch.add(hidden, 10, out=shared)
    torch.add(shared, hidden, out=out)
    return out
