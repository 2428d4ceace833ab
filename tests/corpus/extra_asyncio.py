"""A coroutine that polls an event between other coroutines."""

import asyncio

import torch

N = 8
SPIN = 1_000_000


def right() -> list[float]:
    return [2.0] * N


def polled() -> list[float]:
    device = torch.empty(N, device="cuda")
    host = torch.full((N,), -1.0, pin_memory=True)

    async def fetch() -> list[float]:
        torch.cuda._sleep(SPIN)
        device.fill_(2)
        host.copy_(device, non_blocking=True)
        copied = torch.cuda.Event()
        copied.record()  # edge: load-bearing
        while not copied.query():
            await asyncio.sleep(0)
        return host.tolist()

    return asyncio.run(fetch())


def yielded_once() -> list[float]:
    """Giving way to the event loop is no sync."""
    device = torch.empty(N, device="cuda")
    host = torch.full((N,), -1.0, pin_memory=True)  # buffer

    async def fetch() -> list[float]:
        torch.cuda._sleep(SPIN)
        device.fill_(2)
        host.copy_(device, non_blocking=True)  # first
        await asyncio.sleep(0)
        return host.tolist()  # second

    return asyncio.run(fetch())
