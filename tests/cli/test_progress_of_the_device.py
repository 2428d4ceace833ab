"""Programs that ask how far the device is."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.child import preload
from tests.cli.conftest import Run

HEAD = """
import torch
def copied():
    host, side = torch.zeros(8).pin_memory(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        host.copy_(torch.ones(8, device="cuda"), non_blocking=True)
        return host, side.record_event()
"""
PROGRAMS = {
    "until_done": """
def run():
    out = []
    for _ in range(3):
        host, event = copied()
        while not event.query(): pass
        out.append(host.clone())
    return out
""",
    "gives_up": """
def run():
    host, event = copied()
    for _ in range(3):
        if event.query(): return host.tolist()
    return []
""",
    "counts": """
def run():
    host, event = copied()
    polls = 0
    while not event.query(): polls += 1
    return polls
""",
    "spins": """
def run():
    host, event = copied()
    while host[0] == 0: pass
    event.synchronize()
    return host
""",
}


@pytest.mark.parametrize(
    ("name", "status", "said"),
    [
        ("until_done", 0, "green      proved"),  # three loops, each as long as it may take
        ("gives_up", 1, "green      refuted"),
        ("counts", 1, "green      refuted"),
        ("spins", 3, "the host spins on bytes at spins.py:11"),
    ],
)
def test_polling(name: str, status: int, said: str, here: Path, redgreen: Run) -> None:
    preload()
    (here / f"{name}.py").write_text(HEAD + PROGRAMS[name])
    result = redgreen("prove", f"{name}.py:run", "--quiet")
    assert result.status == status, result.out + result.err
    assert said in result.out
