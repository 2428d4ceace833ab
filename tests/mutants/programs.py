"""Programs with mutants, as plain torch.cuda code; what becomes of a mutant stands on its line.

    # early: killed; stream: survived    verdicts of the mutants of the call or allocation here

A function's operators are those that its marks name; the first word of its name is the one that it
is about.
"""

import torch

N = 8


def early_killed() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer, source = torch.zeros(N, device="cuda"), torch.ones(N, pin_memory=True)
    copied = torch.cuda.Event()
    side.wait_stream(main)  # early: killed
    with torch.cuda.stream(side):
        buffer.copy_(source, non_blocking=True)
        copied.record(side)  # early: killed
    main.wait_event(copied)
    return buffer * 2


def early_survived() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer, source = torch.zeros(N, device="cuda"), torch.ones(N, pin_memory=True)
    scratch, copied = torch.ones(N, device="cuda"), torch.cuda.Event()
    unrelated = torch.zeros(N, device="cuda")
    side.wait_stream(main)  # early: survived
    with torch.cuda.stream(side):
        buffer.copy_(source, non_blocking=True)
        scratch.mul_(2)
        copied.record(side)  # early: survived
    main.wait_event(copied)
    del unrelated
    return buffer * 2


def early_nothing() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    event = torch.cuda.Event()
    event.record(side)  # early: unexercised
    main.wait_event(event)
    return torch.ones(N, device="cuda") * 2


def early_replay() -> torch.Tensor:
    """A launch is one step: a record right after it, made early, marks none of it."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    a, b = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    graph, done = torch.cuda.CUDAGraph(), torch.cuda.Event()
    with torch.cuda.graph(graph):  # waits for the device
        b.copy_(a)
        b.mul_(3)
    side.wait_stream(main)  # early: survived
    with torch.cuda.stream(side):
        graph.replay()
        done.record(side)  # early: killed
    main.wait_event(done)
    return b + 1


def late_killed() -> list[float]:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer, source = torch.zeros(N, device="cuda"), torch.ones(N, pin_memory=True)
    out, copied = torch.zeros(N, pin_memory=True), torch.cuda.Event()
    side.wait_stream(main)  # late: killed
    with torch.cuda.stream(side):
        buffer.copy_(source, non_blocking=True)
        copied.record(side)
    main.wait_event(copied)  # late: killed
    out.copy_(buffer * 2, non_blocking=True)
    main.synchronize()  # late: killed
    return out.tolist()


def late_survived() -> list[float]:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer, source = torch.zeros(N, device="cuda"), torch.ones(N, pin_memory=True)
    notes, scratch = torch.zeros(N, pin_memory=True), torch.ones(N, device="cuda")
    out, copied = torch.zeros(N, pin_memory=True), torch.cuda.Event()
    side.wait_stream(main)  # late: killed
    with torch.cuda.stream(side):
        buffer.copy_(source, non_blocking=True)
        copied.record(side)
    main.wait_event(copied)  # late: survived
    scratch.mul_(2)
    out.copy_(buffer * 2, non_blocking=True)
    torch.cuda.synchronize()  # late: survived
    notes.fill_(1)
    return out.tolist()


def late_nothing() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer = torch.ones(N, device="cuda") * 2
    side.wait_stream(main)  # late: unexercised
    return buffer


def stream_killed() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    buffer, source = torch.zeros(N, device="cuda"), torch.ones(N, pin_memory=True)
    ready, copied = torch.cuda.Event(), torch.cuda.Event()
    ready.record(main)  # stream: unexercised
    side.wait_event(ready)  # stream: killed
    with torch.cuda.stream(side):
        buffer.copy_(source, non_blocking=True)
    copied.record(side)  # stream: killed
    main.wait_event(copied)  # stream: unexercised
    return buffer * 2


def stream_survived() -> torch.Tensor:
    main, side, third = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    buffer, source = torch.zeros(N, device="cuda"), torch.ones(N, pin_memory=True)
    copied = torch.cuda.Event()
    side.wait_stream(main)  # stream: killed
    with torch.cuda.stream(side):
        buffer.copy_(source, non_blocking=True)
    main.wait_stream(side)  # stream: unexercised
    copied.record(side)  # stream: survived
    third.wait_event(copied)  # stream: killed
    with torch.cuda.stream(third):
        out = buffer * 2
    main.wait_stream(third)  # stream: unexercised
    return out


def stream_of_a_storage() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x, y = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    side.wait_stream(main)  # stream: killed
    with torch.cuda.stream(side):
        y.copy_(x)
    x.record_stream(side)  # stream: killed
    del x
    z = torch.full((N,), 9.0, device="cuda")
    main.wait_stream(side)  # stream: unexercised
    return y + z


def stream_of_a_storage_joined() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    x, y = torch.ones(N, device="cuda"), torch.zeros(N, device="cuda")
    side.wait_stream(main)  # stream: killed
    with torch.cuda.stream(side):
        y.copy_(x)
    x.record_stream(side)  # stream: survived
    main.wait_stream(side)  # stream: unexercised
    del x
    z = torch.full((N,), 9.0, device="cuda")
    return y + z


def collapse_killed() -> list[float]:
    copy, seen = torch.cuda.Stream(), []
    device = torch.zeros(4, N, device="cuda")
    hosts = [torch.zeros(N, pin_memory=True) for _ in range(2)]  # collapse: killed
    events = [torch.cuda.Event() for _ in range(2)]
    for i in range(4):
        device[i].fill_(i + 1)
        copy.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copy):
            hosts[i % 2].copy_(device[i], non_blocking=True)
            events[i % 2].record()
        if i:
            events[(i - 1) % 2].synchronize()
            seen += hosts[(i - 1) % 2].tolist()
    events[1].synchronize()
    return seen + hosts[1].tolist()


def collapse_survived() -> list[float]:
    """Two slots, and each is waited for before the next is used: one would do."""
    copy, seen = torch.cuda.Stream(), []
    device = torch.zeros(4, N, device="cuda")
    hosts = [torch.zeros(N, pin_memory=True) for _ in range(2)]  # collapse: survived
    for i in range(4):
        device[i].fill_(i + 1)
        copy.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(copy):
            hosts[i % 2].copy_(device[i], non_blocking=True)
        copy.synchronize()
        seen += hosts[i % 2].tolist()
    return seen


def collapse_on_device() -> torch.Tensor:
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    slots = [torch.zeros(N, device="cuda") for _ in range(2)]  # collapse: killed
    for i, slot in enumerate(slots):
        slot.fill_(i + 1)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        out = slots[0] + 10 * slots[1]
    main.wait_stream(side)
    return out


def collapse_nothing() -> torch.Tensor:
    host = torch.ones(N, pin_memory=True)  # collapse: unexercised
    return host.to("cuda", non_blocking=True) * 2


def free_killed() -> torch.Tensor:
    """Only the name x keeps the block from the next allocation, until main has joined side."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    y = torch.zeros(N, device="cuda")
    x = torch.ones(N, device="cuda")  # free: killed
    side.wait_stream(main)
    with torch.cuda.stream(side):
        y.copy_(x)
    z = torch.full((N,), 9.0, device="cuda")
    main.wait_stream(side)
    return y + z


def free_survived() -> torch.Tensor:
    """The allocator waits for side in any case."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    y = torch.zeros(N, device="cuda")
    x = torch.ones(N, device="cuda")  # free: survived
    x.record_stream(side)
    side.wait_stream(main)
    with torch.cuda.stream(side):
        y.copy_(x)
    z = torch.full((N,), 9.0, device="cuda")
    main.wait_stream(side)
    return y + z


def free_before_it_was_recorded() -> torch.Tensor:
    """A storage must live until its record_stream."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    y = torch.zeros(N, device="cuda")
    x = torch.ones(N, device="cuda")  # free: killed
    side.wait_stream(main)
    with torch.cuda.stream(side):
        y.copy_(x)
    x.record_stream(side)
    del x
    z = torch.full((N,), 9.0, device="cuda")
    main.wait_stream(side)
    return y + z


def free_latent() -> torch.Tensor:
    """Nobody allocates before the join."""
    main, side = torch.cuda.current_stream(), torch.cuda.Stream()
    y = torch.zeros(N, device="cuda")
    x = torch.ones(N, device="cuda")  # free: survived
    side.wait_stream(main)
    with torch.cuda.stream(side):
        y.copy_(x)
    main.wait_stream(side)
    return y.add_(1)


def unpin_survived() -> torch.Tensor:
    source = torch.ones(N, pin_memory=True)  # unpin: survived
    return source.to("cuda", non_blocking=True) * 2


def unpin_killed() -> torch.Tensor:
    """A captured copy needs a pinned source."""
    source, out = torch.ones(N, pin_memory=True), torch.zeros(N, device="cuda")  # unpin: killed
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out.copy_(source, non_blocking=True)
    graph.replay()
    return out * 2


def unpin_of_a_copy() -> torch.Tensor:
    source = torch.arange(N).pin_memory()  # unpin: survived
    return source.to("cuda", non_blocking=True) * 2
