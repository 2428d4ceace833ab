"""redgreen against the enumerator on random programs.

A seed is a program: `python -m tests.enumeration 72` prints it and where the two disagree. More
programs: ``ENUMERATION_PROGRAMS=5000 pytest --slow -n 2 tests/enumeration``.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Iterable

import pytest

from .compare import compare, explain
from .enumerate import TooLarge
from .generate import generate
from .program import Allocate, numbered
from .prove import forked, prove

CI = range(10)
# Programs that free and allocate: the others do the same under every policy.
POLICIES = range(30)
MANY = int(os.environ.get("ENUMERATION_PROGRAMS", "1000"))
CHUNK = 50  # programs of one test
FORKED = (0, 11)


def agree(seeds: Iterable[int], allocator: str = "native") -> Counter[str]:
    """What was compared, by verdict; fails with the first programs that disagree."""
    counts: Counter[str] = Counter()
    wrong = []
    for seed in seeds:
        try:
            found = compare(generate(seed), f"seed{seed}", allocator)
        except TooLarge:
            counts["too large to enumerate"] += 1
            continue
        counts.update(found.verdicts)
        counts["inconclusive"] += len(found.inconclusive)
        counts["overlap not sampled"] += len(found.limits)
        if found.disagreements:
            wrong.append(f"seed {seed}\n{explain(found)}")
    assert not wrong, "\n".join([f"{len(wrong)} programs", *wrong[:5]])
    return counts


def _allocates(seed: int) -> bool:
    return any(isinstance(statement, Allocate) for _, statement in numbered(generate(seed)))


def test_random_programs() -> None:
    counts = agree(CI)
    print(dict(counts))
    for verdict in ("proved", "refuted", "load-bearing", "masked", "redundant"):
        assert counts[verdict] > 2, f"the generator draws too few of these: {counts}"


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, MANY, CHUNK))
def test_many_random_programs(start: int) -> None:
    print(dict(agree(range(start, min(start + CHUNK, MANY)))))


@pytest.mark.parametrize("allocator", ["expandable", "stream-ordered"])
def test_random_programs_under_other_policies(allocator: str) -> None:
    print(dict(agree(filter(_allocates, POLICIES), allocator)))


@pytest.mark.slow
@pytest.mark.parametrize("start", range(0, MANY, CHUNK))
@pytest.mark.parametrize("allocator", ["expandable", "stream-ordered"])
def test_many_random_programs_under_other_policies(allocator: str, start: int) -> None:
    seeds = range(start, min(start + CHUNK, MANY))
    print(dict(agree([s for s in seeds if _allocates(s)], allocator)))


@pytest.mark.parametrize("seed", FORKED)
def test_runs_in_one_process_are_as_good_as_forks(seed: int) -> None:
    """All that is compared comes from runs in this process, which users' proofs do not have."""
    program = generate(seed)
    mine, theirs = prove(program, f"fork{seed}").proof, forked(program, f"fork{seed}")
    assert mine.green.verdict == theirs.green.verdict
    assert mine.green.schedules == theirs.green.schedules
    for a, b in zip(mine.edges, theirs.edges, strict=True):
        assert (a.id, a.verdict, a.explored, a.masked_with) == (
            b.id, b.verdict, b.explored, b.masked_with)
