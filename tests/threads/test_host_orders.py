"""All orders of the calls of host threads are found: counted against all interleavings."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest
import torch

import redgreen

ROWS = 3
SEEDS = (0, 13, 17, 39)
MORE = [seed for seed in range(38) if seed not in SEEDS]


@dataclass(frozen=True, slots=True)
class Call:
    """``rows[into] = rows[into] * by + rows[of]``, on one stream."""

    into: int
    of: int
    by: int


Threads = tuple[tuple[Call, ...], ...]


def draw(seed: int) -> Threads:
    pick = random.Random(seed)

    def call() -> Call:
        return Call(pick.randrange(ROWS), pick.randrange(ROWS), pick.choice((1, 1, 2, 3)))

    sizes = pick.choice(((1, 1), (2, 1), (1, 1, 1), (2, 2), (3, 1)))
    return tuple(tuple(call() for _ in range(size)) for size in sizes)


def interleavings(threads: Threads) -> Iterator[tuple[Call, ...]]:
    if not any(threads):
        yield ()
    for i, calls in enumerate(threads):
        if calls:
            left = (*threads[:i], calls[1:], *threads[i + 1 :])
            yield from ((calls[0], *rest) for rest in interleavings(left))


def expected(threads: Threads) -> set[tuple[int, ...]]:
    found = set()
    for calls in interleavings(threads):
        rows = list(range(1, ROWS + 1))
        for call in calls:
            rows[call.into] = rows[call.into] * call.by + rows[call.of]
        found.add(tuple(rows))
    return found


def subject(threads: Threads) -> Callable[[], torch.Tensor]:
    def program() -> torch.Tensor:
        rows = torch.arange(1, ROWS + 1).cuda()
        side = torch.cuda.Stream()
        side.wait_stream(torch.cuda.current_stream())

        def work(calls: tuple[Call, ...]) -> None:
            with torch.cuda.stream(side):
                for call in calls:
                    torch.addcmul(rows[call.of], rows[call.into], torch.tensor(call.by),
                                  out=rows[call.into])  # fmt: skip

        workers = [threading.Thread(target=work, args=(calls,)) for calls in threads]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        torch.cuda.current_stream().wait_stream(side)
        return rows

    return program


@pytest.mark.parametrize(
    "seed", [*SEEDS, *(pytest.param(seed, marks=pytest.mark.slow) for seed in MORE)]
)
def test_outcomes_are_those_of_all_interleavings(seed: int) -> None:
    threads = draw(seed)
    green = redgreen.prove(subject(threads)).green
    assert green.scope == "explored host orders"
    assert green.outcomes == len(expected(threads)), threads
    assert green.verdict == ("proved" if green.outcomes == 1 else "refuted")


def test_the_programs_differ() -> None:
    counts = [len(expected(draw(seed))) for seed in SEEDS]
    assert 1 in counts and max(counts) > 2
