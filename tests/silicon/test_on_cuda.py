"""Section by section what `python -m tests.silicon` does, as tests; skipped without a device."""

from __future__ import annotations

import pytest

from tests.silicon import experiments
from tests.silicon.source import ALL

pytestmark = pytest.mark.cuda


@pytest.mark.parametrize("name", ALL)
def test_verdicts_and_witnesses_are_those_of_the_virtual_gpu(name: str) -> None:
    assert experiments.experiment(name).wrong == ()


def test_watchdog_ends_a_deadlock() -> None:
    assert experiments.deadlock().wrong == ()
