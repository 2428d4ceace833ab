"""B26: a host wait and a chain of stream waits order the same two accesses.

Each of them looks dead alone; one of each together is not. ``without_verify`` is the program after
the host wait was removed: now every link of the chain is needed.
"""

import torch

N = 8
SPIN = 1_000_000


def right() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.full((N,), 1.0), torch.full((N,), 2.0)


def both() -> tuple[torch.Tensor, torch.Tensor]:
    forward, schedule, plan = (torch.cuda.Stream() for _ in range(3))
    table, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    with torch.cuda.stream(forward):
        table.fill_(1)
        torch.cuda._sleep(SPIN)
        out.copy_(table)
    read_done, verify_done = torch.cuda.Event(), torch.cuda.Event()
    read_done.record(forward)  # edge read-record: masked
    schedule.wait_event(read_done)  # edge read-wait: masked
    plan.wait_stream(schedule)  # edge plan: masked
    verify_done.record(forward)  # edge verify-record: masked
    verify_done.synchronize()  # edge verify-wait: masked
    with torch.cuda.stream(plan):
        table.fill_(2)
        after = table.cpu()
    with torch.cuda.stream(forward):
        return out.cpu(), after


def without_verify() -> tuple[torch.Tensor, torch.Tensor]:
    forward, schedule, plan = (torch.cuda.Stream() for _ in range(3))
    table, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    with torch.cuda.stream(forward):
        table.fill_(1)
        torch.cuda._sleep(SPIN)
        out.copy_(table)
    read_done = torch.cuda.Event()
    read_done.record(forward)  # edge: load-bearing
    schedule.wait_event(read_done)  # edge: load-bearing
    plan.wait_stream(schedule)  # edge: load-bearing
    with torch.cuda.stream(plan):
        table.fill_(2)
        after = table.cpu()
    with torch.cuda.stream(forward):
        return out.cpu(), after
