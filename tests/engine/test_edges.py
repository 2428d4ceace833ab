"""Every row of the edge table comes out as it says; minutes, since each row is proved."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine import edges, subjects
from tests.engine.edges import ROWS, Pair, Row, Sync

HERE = Path(__file__).parent
ENGINE = HERE.parents[1] / "engine"


def test_the_table_is_about_this_engine() -> None:
    """Ids are unique, sync rows have a commented site, tests and subjects exist."""
    assert len({row.id for row in ROWS}) == len(ROWS) >= 32
    sources = "\n".join(path.read_text() for path in ENGINE.rglob("*.py"))
    for row in ROWS:
        assert row.id in sources
        for evidence in row.evidence:
            if isinstance(evidence, Pair):
                file, test = evidence.tests.split("::")
                assert f"def {test}(" in (HERE / file).read_text()
            if isinstance(evidence, Sync):
                assert all(callable(getattr(subjects, name)) for name in evidence.verdicts)


@pytest.mark.slow
@pytest.mark.parametrize("row", [row for row in ROWS if not isinstance(row.evidence[0], Pair)],
                         ids=lambda row: row.id)  # fmt: skip
def test_row(row: Row) -> None:
    for finding in edges.check(row):
        assert finding.found == finding.expected, f"{finding.what}: {finding.detail}"
