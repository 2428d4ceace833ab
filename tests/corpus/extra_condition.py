"""Two threads alternate under a condition variable; each passes an event with its turn."""

import threading

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(STEPS)])


def with_events() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer = torch.empty(N, device="cuda")
    out = torch.empty(STEPS, N, device="cuda")
    turn = threading.Condition()
    written: list[torch.cuda.Event] = []
    read: list[torch.cuda.Event] = []

    def write() -> None:
        for i in range(STEPS):
            with turn:
                turn.wait_for(lambda step=i: len(read) == step)
            if read:
                side.wait_event(read[-1])  # edge: load-bearing
            with torch.cuda.stream(side):
                torch.cuda._sleep(SPIN)
                buffer.fill_(i)
            done = side.record_event()  # edge: load-bearing
            with turn:
                written.append(done)
                turn.notify_all()

    thread = threading.Thread(target=write)
    thread.start()
    for i in range(STEPS):
        with turn:
            turn.wait_for(lambda step=i: len(written) == step + 1)
        main.wait_event(written[-1])  # edge: load-bearing
        out[i].copy_(buffer)
        done = main.record_event()  # edge: load-bearing
        with turn:
            read.append(done)
            turn.notify_all()
    thread.join()
    return out


def with_turns_only() -> torch.Tensor:
    side = torch.cuda.Stream()
    buffer = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(STEPS, N, device="cuda")
    turn = threading.Condition()
    turns: list[str] = []

    def write() -> None:
        for i in range(STEPS):
            with turn:
                turn.wait_for(lambda step=i: len(turns) == 2 * step)
            with torch.cuda.stream(side):
                torch.cuda._sleep(SPIN)
                buffer.fill_(i)  # first
            with turn:
                turns.append("written")
                turn.notify_all()

    thread = threading.Thread(target=write)
    thread.start()
    for i in range(STEPS):
        with turn:
            turn.wait_for(lambda step=i: len(turns) == 2 * step + 1)
        out[i].copy_(buffer)  # second
        with turn:
            turns.append("read")
            turn.notify_all()
    thread.join()
    return out
