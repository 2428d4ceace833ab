"""The engine's own fault points and redgreen's faults break the same things."""

from __future__ import annotations

from typing import Any

import pytest

import redgreen
from engine.faults import POINTS, Faults
from tests.engine import subjects
from tests.engine.edges import proof
from tests.engine.harness import ON

# fault point -> the sync call that redgreen drops for the same effect
TWINS: dict[str, tuple[str, str, dict[str, Any]]] = {
    "E42.skip-wait": ("E42", "wait_stream", {}),
    "E43.skip-wait": ("E43", "event.synchronize", {}),
    "E43.skip-record": ("E43", "record", {}),
    "E08.skip-wait": ("E08", "event.synchronize", {}),
    "E08.skip-record": ("E08", "record", {}),
    "E06.skip-drain": ("E06", "stream.synchronize", {}),
}


def with_fault(name: str) -> Any:
    return subjects.decode(faults=Faults(name), flags=ON)


@pytest.mark.slow
@pytest.mark.parametrize("name", TWINS)
def test_both_agree(name: str) -> None:
    """Output depends on the schedule with the fault exactly if the dropped call is load-bearing."""
    row, kind, _ = TWINS[name]
    (edge,) = (
        edge for edge in proof("option_a")["edges"] if row in edge["code"] and edge["kind"] == kind
    )
    green = redgreen.prove(with_fault, name, edges="nowhere", budget=12).to_dict()["green"]
    assert (green["verdict"] == "refuted") == (edge["verdict"] == "load-bearing")
    assert (green["verdict"] == "proved") == (edge["verdict"] == "redundant")


def test_a_fault_counts_its_hits_and_nothing_else() -> None:
    faults = Faults("E08.poison")
    assert not faults.hit("E42.skip-wait")
    assert faults.hit("E08.poison")
    assert faults.hits == {"E08.poison": 1}
    assert not any(Faults().hit(name) for name in POINTS)


def test_every_point_is_in_the_engine() -> None:
    from pathlib import Path

    import engine.faults

    folder = Path(engine.faults.__file__).parent
    sources = "\n".join(p.read_text() for p in folder.rglob("*.py") if p.name != "faults.py")
    for name in POINTS:
        assert f'"{name}"' in sources, name
