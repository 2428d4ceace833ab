"""torch.Stream, torch.Event and torch.accelerator in place of their torch.cuda names."""

import torch

N = 8
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 1.0)


def right_host() -> list[float]:
    return [1.0] * N


def with_event() -> torch.Tensor:
    side = torch.Stream(device="cuda")
    x, out = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    with side:
        torch.cuda._sleep(SPIN)
        x.fill_(1)
    done = side.record_event()  # edge: load-bearing
    torch.accelerator.current_stream().wait_event(done)  # edge: load-bearing
    out.copy_(x)
    return out


def without_event() -> torch.Tensor:
    side = torch.Stream(device="cuda")
    x = torch.empty(N, device="cuda")  # buffer
    out = torch.empty(N, device="cuda")
    with side:
        torch.cuda._sleep(SPIN)
        x.fill_(1)  # first
    out.copy_(x)  # second
    return out


def event_of_no_module() -> list[float]:
    x = torch.empty(N, device="cuda")
    host = torch.full((N,), -1.0, pin_memory=True)
    torch.cuda._sleep(SPIN)
    x.fill_(1)
    host.copy_(x, non_blocking=True)
    copied = torch.Event("cuda")
    copied.record()  # edge: load-bearing
    copied.synchronize()  # edge: load-bearing
    return host.tolist()


def accelerator_sync() -> list[float]:
    x = torch.empty(N, device="cuda")
    host = torch.full((N,), -1.0, pin_memory=True)
    torch.cuda._sleep(SPIN)
    x.fill_(1)
    host.copy_(x, non_blocking=True)
    torch.accelerator.synchronize()  # edge: load-bearing
    return host.tolist()
