"""B01: a freed request row is refilled while the forward pass that reads it is still queued.

The schedule stream owns the table; the forward stream waits for it at entry (read after write), but
nothing makes the next refill wait for the forward pass (write after read). ``lengths`` crosses the
same two streams and does not race: each step has a row of its own.
"""

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), 11.0 * i) for i in range(STEPS)])


def buggy() -> torch.Tensor:
    table = torch.empty(4, N, device="cuda")  # buffer
    lengths = torch.empty(STEPS, N, device="cuda")
    out = torch.empty(STEPS, N, device="cuda")
    schedule, forward = torch.cuda.current_stream(), torch.cuda.Stream()
    free_rows = [0]
    for i in range(STEPS):
        row = free_rows.pop()
        table[row].fill_(i)  # second
        lengths[i].fill_(10 * i)
        forward.wait_stream(schedule)  # edge: load-bearing
        with torch.cuda.stream(forward):
            torch.cuda._sleep(SPIN)
            torch.add(table[row], lengths[i], out=out[i])  # first
        free_rows.append(row)  # the request is finished for the host only
    with torch.cuda.stream(forward):
        return out.cpu()


def fixed() -> torch.Tensor:
    table = torch.empty(4, N, device="cuda")
    lengths = torch.empty(STEPS, N, device="cuda")
    out = torch.empty(STEPS, N, device="cuda")
    schedule, forward = torch.cuda.current_stream(), torch.cuda.Stream()
    free_rows = [0]
    for i in range(STEPS):
        schedule.wait_stream(forward)  # edge: load-bearing
        row = free_rows.pop()
        table[row].fill_(i)
        lengths[i].fill_(10 * i)
        forward.wait_stream(schedule)  # edge: load-bearing
        with torch.cuda.stream(forward):
            torch.cuda._sleep(SPIN)
            torch.add(table[row], lengths[i], out=out[i])
        free_rows.append(row)
    with torch.cuda.stream(forward):
        return out.cpu()
