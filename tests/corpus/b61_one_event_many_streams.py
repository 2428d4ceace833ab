"""B61: a barrier records one event on each stream and then waits: only the last record counts."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 3.0)


def buggy() -> torch.Tensor:
    main, left, right_ = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    a = torch.empty(N, device="cuda")  # buffer
    b, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    done = torch.cuda.Event()
    with torch.cuda.stream(left):
        torch.cuda._sleep(SPIN)
        a.fill_(1)  # first
        done.record(left)  # edge: redundant
    with torch.cuda.stream(right_):
        b.fill_(2)
        done.record(right_)  # edge: load-bearing; diag: event-rearmed
    main.wait_event(done)  # edge: load-bearing; diag: event-rearmed
    torch.add(a, b, out=out)  # second
    return out


def fixed() -> torch.Tensor:
    main, left, right_ = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    a, b, out = (torch.empty(N, device="cuda") for _ in range(3))
    a_done, b_done = torch.cuda.Event(), torch.cuda.Event()
    with torch.cuda.stream(left):
        torch.cuda._sleep(SPIN)
        a.fill_(1)
        a_done.record(left)  # edge: load-bearing
    with torch.cuda.stream(right_):
        b.fill_(2)
        b_done.record(right_)  # edge: load-bearing
    main.wait_event(a_done)  # edge: load-bearing
    main.wait_event(b_done)  # edge: load-bearing
    torch.add(a, b, out=out)
    return out
