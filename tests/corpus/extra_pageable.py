"""Copies that wait by themselves: pageable memory, and pinned memory without non_blocking."""

import torch

N = 8
STEPS = 2
SPIN = 1_000_000


def right() -> list[list[float]]:
    return [[float(i)] * N for i in range(STEPS)]


def to_pageable() -> list[list[float]]:
    host = torch.full((N,), -1.0)
    device = torch.empty(N, device="cuda")
    seen: list[list[float]] = []
    for i in range(STEPS):
        torch.cuda._sleep(SPIN)
        device.fill_(i)
        host.copy_(device, non_blocking=True)
        torch.cuda.current_stream().synchronize()  # edge: redundant
        seen.append(host.tolist())
    return seen


def blocking_pinned() -> list[list[float]]:
    source, host = torch.empty(N, pin_memory=True), torch.full((N,), -1.0, pin_memory=True)
    device = torch.empty(N, device="cuda")
    seen: list[list[float]] = []
    for i in range(STEPS):
        source.fill_(i)
        torch.cuda._sleep(SPIN)
        device.copy_(source)
        host.copy_(device)
        seen.append(host.tolist())
    return seen


def other_stream() -> list[list[float]]:
    """A blocking copy waits for its own stream only."""
    side = torch.cuda.Stream()
    host = torch.full((N,), -1.0, pin_memory=True)  # buffer
    device, idle = torch.empty(N, device="cuda"), torch.empty(N, device="cuda")
    seen: list[list[float]] = []
    for i in range(STEPS):
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            device.fill_(i)
            host.copy_(device, non_blocking=True)  # first
        idle.copy_(torch.full((N,), 5.0))
        seen.append(host.tolist())  # second
    return seen
