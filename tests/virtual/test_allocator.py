"""Which bytes an allocation gets, compared with what torch 2.11 did on an H200."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from redgreen.virtual.allocator import Native
from redgreen.virtual.chunks import Chunk
from redgreen.virtual.expandable import Expandable

RECORDED = Path(__file__).parent / "h200"


@dataclass(eq=False)
class Segment:
    address: int
    size: int
    used: int = 0


class Driver:
    """Segments where the real driver had them."""

    def __init__(self) -> None:
        self.address: Callable[[], int] = lambda: 0
        self.reserved = 0

    def segment(self, size: int, growing: bool = False) -> Any:
        return Segment(self.address(), size)

    def reserve(self, size: int) -> None:
        self.reserved += size

    def unmap(self, memory: Any, low: int, high: int) -> None:
        pass

    def idle(self, stream: int) -> None:
        pass


def rounded(size: int) -> int:
    return -(-size // 512) * 512


@pytest.mark.parametrize("policy", [Native, Expandable])
def test_the_same_places_as_on_an_h200(policy: type[Native]) -> None:
    """700 allocations and frees of 1 B to 25 MiB on two streams, with empty_cache."""
    steps = json.loads((RECORDED / f"{policy.__name__.lower()}.json").read_text())
    driver = Driver()
    allocator = policy(driver, lambda work: True)
    live: list[Chunk] = []
    allocated = 0
    for place, step in enumerate(steps):
        if step[0] == "a":
            _, size, stream, address, reserved, total = step
            driver.address = lambda address=address: address
            chunk = allocator.take(rounded(size), stream, True)
            live.append(chunk)
            allocated += chunk.size
            assert (chunk.address, driver.reserved, allocated) == (address, reserved, total), place
        elif step[0] == "f":
            chunk = live.pop(step[1])
            allocated -= chunk.size
            allocator.give(chunk, [])
        else:
            allocator.give_back()
            assert driver.reserved == step[1], place
