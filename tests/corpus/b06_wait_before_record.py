"""B06: a wait that is issued before the record orders nothing, or only the step before.

The reported bug has two threads: a CUDA event alone cannot order a record in one before a wait in
the other; the host needs a flag, and the flag must be set after the record.
"""

import threading

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0)


def buggy() -> torch.Tensor:
    main, worker = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(N, device="cuda")
    filled = torch.cuda.Event()
    main.wait_event(filled)  # edge: redundant; diag: wait-on-unrecorded-event
    with torch.cuda.stream(worker):
        torch.cuda._sleep(SPIN)
        buffer.fill_(1)  # first
        filled.record(worker)  # edge: redundant
    out.copy_(buffer)  # second
    return out


def buggy_iterated() -> torch.Tensor:
    """Each wait is bound to the record of the step before: too weak, but not without effect."""
    main, worker = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(STEPS, N, device="cuda")
    filled = torch.cuda.Event()
    for i in range(STEPS):
        main.wait_event(filled)  # edge: load-bearing
        with torch.cuda.stream(worker):
            torch.cuda._sleep(SPIN)
            buffer.fill_(i)  # first
            filled.record(worker)  # edge: load-bearing
        out[i].copy_(buffer)  # second
    return out


def fixed() -> torch.Tensor:
    main, worker = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer = torch.empty(N, device="cuda")
    out = torch.empty(N, device="cuda")
    filled = torch.cuda.Event()
    with torch.cuda.stream(worker):
        torch.cuda._sleep(SPIN)
        buffer.fill_(1)
        filled.record(worker)  # edge: load-bearing
    main.wait_event(filled)  # edge: load-bearing
    out.copy_(buffer)
    return out


def buggy_threads() -> torch.Tensor:
    """The flag is set before the record, and the waiter gets there in between."""
    main, worker = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(N, device="cuda")
    filled = torch.cuda.Event()
    flag, waited = threading.Event(), threading.Event()

    def work() -> None:
        with torch.cuda.stream(worker):
            torch.cuda._sleep(SPIN)
            buffer.fill_(1)  # first
            flag.set()
            waited.wait()
            filled.record(worker)  # edge: redundant

    thread = threading.Thread(target=work)
    thread.start()
    flag.wait()
    main.wait_event(filled)  # edge: redundant; diag: wait-on-unrecorded-event
    waited.set()
    thread.join()
    out.copy_(buffer)  # second
    return out


def fixed_threads() -> torch.Tensor:
    main, worker = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer = torch.empty(N, device="cuda")
    out = torch.empty(N, device="cuda")
    filled = torch.cuda.Event()
    flag = threading.Event()

    def work() -> None:
        with torch.cuda.stream(worker):
            torch.cuda._sleep(SPIN)
            buffer.fill_(1)
            filled.record(worker)  # edge: load-bearing
            flag.set()

    thread = threading.Thread(target=work)
    thread.start()
    flag.wait()
    main.wait_event(filled)  # edge: load-bearing
    out.copy_(buffer)
    thread.join()
    return out
