"""Whatever comes when, in whatever configuration and on whatever schedule: the same output."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, find, given, settings

from tests.engine.fuzz import CASES, Case, disagreement

EXAMPLES = int(os.environ.get("ENGINE_FUZZ_EXAMPLES", "200"))
FEW = 5
RELAXED = {
    "deadline": None,
    "database": None,
    "suppress_health_check": list(HealthCheck),
}


@pytest.mark.parametrize(
    "examples", [FEW, pytest.param(EXAMPLES, marks=pytest.mark.slow)], ids=["few", "many"]
)
def test_the_engine_agrees_with_the_plain_one(dense: Path, examples: int) -> None:
    @settings(max_examples=examples, derandomize=examples == FEW, **RELAXED)  # type: ignore[arg-type]
    @given(CASES)
    def agrees(case: Case) -> None:
        assert disagreement(dense, case) == ""

    agrees()


PLANTED = [
    "E01.combine-host-ids", "E03.skip-row-moves", "E06.skip-drain", "E35.live-padding",
    "E42.skip-wait", "E43.skip-wait", "E47.skip-wait", "E53.keep-state",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("fault", PLANTED)
def test_a_planted_bug_is_found_and_shrunk(dense: Path, fault: str) -> None:
    phases = [Phase.generate, Phase.shrink]
    smallest = find(
        CASES,
        lambda case: disagreement(dense, case, fault) != "",
        settings=settings(max_examples=400, phases=phases, **RELAXED),  # type: ignore[arg-type]
    )
    assert disagreement(dense, smallest, fault) != ""
    assert disagreement(dense, smallest) == ""
    assert len(smallest.operations) <= 4
