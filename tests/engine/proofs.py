"""The configurations as GREEN and RED items: ``pytest tests/engine/proofs.py -m "red or green"``.

Every sync call of the engine is an item in every configuration that reaches it; one that is
redundant there says why. Minutes, and its collection alone records every configuration, so the
file is not collected unless it is named.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.engine import subjects

ENGINE = Path(__file__).parents[2] / "engine"
CAPTURE = "capture takes what is enqueued, not what runs"
CLOSING = "every output has been read by then"
STAGED = "the output of the step before the last has been waited for: ring 2, depth 2"
DRAIN = "no eager step follows an eager one at once"
DROPPED = "blocks of the dropped slot go back to pools of the same stream"
UNREAD = "what is copied too late is what nobody reads"


def site(file: str, comment: str, kind: str) -> str:
    """The id of the one edge whose line has this comment."""
    lines = (ENGINE / file).read_text().splitlines()
    (number,) = (n for n, line in enumerate(lines, 1) if comment in line and "()" in line)
    return f"{file}:{number} {kind}"


E06 = {site("runner.py", "# E06: HOST-WAR", "stream.synchronize"): DRAIN}
E08 = {
    site("decode_graph.py", "# E08: HOST-WAR", "event.synchronize"): STAGED,
    next(
        f"decode_graph.py:{n} record"
        for n, line in enumerate((ENGINE / "decode_graph.py").read_text().splitlines(), 1)
        if line.endswith("record()  # E08")
    ): STAGED,
}
E24 = {site("decode_graph.py", "# E24", "stream.synchronize"): CAPTURE}
E32 = {site("decode_graph.py", "# E32", "stream.synchronize"): DROPPED}
E62 = {site("runner.py", "# E62", "torch.cuda.synchronize"): CLOSING}


@pytest.mark.redgreen(edges="*engine/*", reference=subjects.default,
                      redundant=E06 | E08 | E24 | E62)  # fmt: skip
def test_option_a() -> Any:
    return subjects.option_a()


@pytest.mark.redgreen(edges="*engine/*", redundant=E24 | E62)
def test_off() -> Any:
    return subjects.default()


@pytest.mark.redgreen(edges="*engine/*", reference=subjects.default, redundant=E24 | E62)
def test_host_mirror() -> Any:
    return subjects.host_mirror()


@pytest.mark.redgreen(edges="*engine/*", reference=subjects.default, redundant=E06 | E24 | E62)
def test_one_slot() -> Any:
    return subjects.one_slot()


@pytest.mark.redgreen(edges="*engine/*", redundant=E06 | E24 | E62)
def test_depth_3() -> Any:
    return subjects.depth_3()


@pytest.mark.redgreen(edges="*engine/*", redundant=E08 | E62)
def test_mixed_steps() -> Any:
    return subjects.mixed_steps()


@pytest.mark.redgreen(edges="*engine/*", redundant=E06 | E08 | E24 | E62)
def test_penalties() -> Any:
    return subjects.penalties()


@pytest.mark.redgreen(edges="*engine/*", redundant=E06 | E08 | E24 | E32 | E62)
def test_growing_table() -> Any:
    return subjects.growing_table()


@pytest.mark.redgreen(edges="*engine/*", redundant=E06 | E08 | E24 | E62)
def test_experts() -> Any:
    return subjects.experts()
