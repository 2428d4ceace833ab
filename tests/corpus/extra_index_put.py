"""Rows chosen by device data: what is written depends on values, not on shapes.

A tool that takes the whole table as written may list a race; no byte can differ, so it is benign.
"""

import torch

N = 8
ROWS = 4
SPIN = 1_000_000


def right() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((N,), 0.0), torch.tensor([[0.0] * N, [5.0] * N, [5.0] * N, [0.0] * N])


def other_rows() -> tuple[torch.Tensor, torch.Tensor]:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    table = torch.zeros(ROWS, N, device="cuda")
    rows = torch.tensor([1, 2], device="cuda")
    values = torch.full((2, N), 5.0, device="cuda")
    out = torch.empty(N, device="cuda")
    side.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        table[rows] = values
    out.copy_(table[3])
    main.wait_stream(side)  # edge: load-bearing
    return out, table


def same_row() -> tuple[torch.Tensor, torch.Tensor]:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    table = torch.zeros(ROWS, N, device="cuda")  # buffer
    rows = torch.tensor([1, 2], device="cuda")
    values = torch.full((2, N), 5.0, device="cuda")
    out = torch.empty(N, device="cuda")
    side.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(side):
        torch.cuda._sleep(SPIN)
        table[rows] = values  # first
    out.copy_(table[2])  # second
    main.wait_stream(side)  # edge: load-bearing
    return out, table
