"""Each place that an allocation may get, by what is done, is one that some answers lead to."""

from __future__ import annotations

import random
from copy import deepcopy
from dataclasses import dataclass, field
from itertools import product

import pytest

from redgreen.virtual import reuse
from redgreen.virtual.allocator import Native
from redgreen.virtual.chunks import Chunk
from redgreen.virtual.expandable import Expandable
from redgreen.virtual.work import Work

from .test_allocator import Driver

MIB = 1 << 20
SIZES = (2, 3, 5, 8, 13, 21, 34, 50, 70)
Place = tuple[int, int]


@dataclass
class Answers:
    """Given in turn; no when they run out."""

    answers: list[bool] = field(default_factory=list)
    asked: int = 0

    def __call__(self, work: Work) -> bool:
        self.asked += 1
        if self.asked > len(self.answers):
            self.answers.append(False)
        return self.answers[self.asked - 1]


class Addresses:
    """The next one is far away from all others."""

    def __init__(self) -> None:
        self.next = 0

    def __call__(self) -> int:
        self.next += 1 << 40
        return self.next


def large(allocator: Native) -> list[Chunk]:
    pool = allocator._pools.get((False, 0))
    return pool.marked if pool else []


def taken(allocator: Native, size: int, ask: bool) -> Place:
    chunk = allocator.take(size, 0, ask)
    return chunk.address, chunk.size


def by_answers(allocator: Native, size: int) -> tuple[set[Place], int]:
    """The places, and how often was asked at most."""
    places, most, left = set[Place](), 0, [list[bool]()]
    while left:
        known = left.pop()
        copy = deepcopy(allocator)
        copy.done = answers = Answers(known.copy())
        places.add(taken(copy, size, True))
        most = max(most, answers.asked)
        for place in range(len(known), answers.asked):
            left.append([*answers.answers[:place], True])
    return places, most


def by_what_is_done(allocator: Native, size: int) -> set[Place]:
    places = set[Place]()
    for done in product((False, True), repeat=len(large(allocator))):
        copy = deepcopy(allocator)
        for chunk, free in zip(list(large(copy)), done, strict=True):
            if free:
                large(copy).remove(chunk)
                copy.release(chunk)
        places.add(taken(copy, size, False))
    return places


@pytest.mark.parametrize("few", [reuse.FEW, 1])
@pytest.mark.parametrize("policy", [Native, Expandable])
def test_no_place_is_missed(
    policy: type[Native], few: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reuse, "FEW", few)
    several = 0
    for seed in range(25):
        rng, driver = random.Random(seed), Driver()
        driver.address = Addresses()
        allocator, live = policy(driver, Answers()), list[Chunk]()
        for _ in range(60):
            what, size = rng.random(), rng.choice(SIZES) * MIB
            if what < 0.45:
                if large(allocator):
                    places, asked = by_answers(allocator, size)
                    assert places == by_what_is_done(allocator, size), seed
                    assert few == 1 or (asked > 0) == (len(places) > 1), seed
                    several += len(places) > 2
                allocator.done = Answers([rng.random() < 0.5 for _ in range(4)])
                live.append(allocator.take(size, 0, True))
            elif what < 0.9 and live:
                mark = rng.random() < 0.5 and len(large(allocator)) < 4
                allocator.give(live.pop(rng.randrange(len(live))), [Work] if mark else [])  # type: ignore[list-item]
            elif what > 0.93:
                allocator.give_back()
    assert several > 20
