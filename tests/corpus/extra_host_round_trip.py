"""Device to host on one stream, work on the host, host to device on another."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 3.0)


def synchronized() -> torch.Tensor:
    main, down, up = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    received, sent = torch.full((N,), -1.0, pin_memory=True), torch.empty(N, pin_memory=True)
    x, y, out = (torch.empty(N, device="cuda") for _ in range(3))
    x.fill_(1)
    down.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(down):
        torch.cuda._sleep(SPIN)
        received.copy_(x, non_blocking=True)
    down.synchronize()  # edge: load-bearing
    torch.add(received, 2, out=sent)
    with torch.cuda.stream(up):
        y.copy_(sent, non_blocking=True)
    main.wait_stream(up)  # edge: load-bearing
    out.copy_(y)
    return out


def host_too_early() -> torch.Tensor:
    main, down, up = torch.cuda.current_stream(), torch.cuda.Stream(), torch.cuda.Stream()
    received = torch.full((N,), -1.0, pin_memory=True)  # buffer
    sent = torch.empty(N, pin_memory=True)
    x, y, out = (torch.empty(N, device="cuda") for _ in range(3))
    x.fill_(1)
    down.wait_stream(main)  # edge: load-bearing
    with torch.cuda.stream(down):
        torch.cuda._sleep(SPIN)
        received.copy_(x, non_blocking=True)  # first
    up.wait_stream(down)  # edge: redundant
    torch.add(received, 2, out=sent)  # second
    with torch.cuda.stream(up):
        y.copy_(sent, non_blocking=True)
    main.wait_stream(up)  # edge: load-bearing
    out.copy_(y)
    return out
