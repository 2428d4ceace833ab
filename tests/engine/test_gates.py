"""The gates of the pull request that this engine follows, under their names, on the virtual GPU.

``test_on_cuda`` has them for a real one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import redgreen
from engine import Flags
from tests.engine import gates, subjects
from tests.engine.corpus import CHECKPOINTS, prompt_ids
from tests.engine.gates import GOLDEN
from tests.engine.harness import ON, ONE_SLOT, config, params, prompts, run

REPETITIONS = [
    pytest.param("dense", 1, id="dense"),
    pytest.param("dense", 3, id="dense-three-times", marks=pytest.mark.slow),
    pytest.param("moe", 3, id="moe-three-times", marks=pytest.mark.slow),
]


@pytest.mark.usefixtures("virtual_gpu")
@pytest.mark.parametrize(("kind", "times"), REPETITIONS)
def test_paged_engine(kind: str, times: int) -> None:
    gates.paged_engine(kind, times)


@pytest.mark.slow
@pytest.mark.usefixtures("virtual_gpu")
def test_async_serving(trained: Path) -> None:
    gates.async_serving(trained)


@pytest.mark.usefixtures("virtual_gpu")
@pytest.mark.parametrize(
    "tokens", [4, *(pytest.param(n, marks=pytest.mark.slow) for n in (32, 100))]
)
def test_served_ignore_eos(dense: Path, tokens: int) -> None:
    """Far past the end token, with and without it."""
    result = run(config(dense, "cuda", flags=ON), prompts(4, longest=9), params(tokens))
    assert [len(output) for output in result.tokens] == [tokens] * 4


def answer(kind: str, flags: Flags) -> Any:
    """Two prompts on a trained checkpoint: tokens, and every byte of pages and states."""
    model = CHECKPOINTS / kind
    settings = config(model, "cuda", flags=flags, block_size=64, num_blocks=4, max_num_seqs=2)
    result = run(settings, prompt_ids(model, 2), params(10))
    return result.tokens, result.cache


POISON = Flags(executor=True, executor_poison=True)


@pytest.mark.slow
@pytest.mark.parametrize("kind", GOLDEN)
def test_poison_is_red_and_deterministic(kind: str) -> None:
    """The flag: on some schedule the copies are late, the witness says which, and it replays."""
    first, second = (
        redgreen.prove(answer, kind, POISON, edges="nowhere", budget=12).to_dict()["green"]
        for _ in range(2)
    )
    assert first["verdict"] == second["verdict"] == "refuted"
    assert first["races"] == second["races"]
    assert {race["hazard"] for race in first["races"]} == {"HOST-WAR"}


@pytest.mark.slow
@pytest.mark.parametrize("kind", GOLDEN)
def test_no_double_buffer_passes(kind: str) -> None:
    """Right on every schedule: one slot, and the drain is skipped all the same."""
    document = redgreen.prove(
        answer, kind, ONE_SLOT, reference=lambda kind, flags: answer(kind, ON), edges="nowhere"
    ).to_dict()
    assert document["green"]["verdict"] == "proved"
    assert document["green"]["reference"] == "identical"


@pytest.mark.slow
def test_no_double_buffer_passes_because_of_the_input_staged_event() -> None:
    """With every byte of pages and states compared, on a model small enough for every edge."""
    document = redgreen.prove(subjects.one_slot, edges="*engine/*").to_dict()
    assert document["green"]["verdict"] == "proved"
    verdicts = {e["verdict"] for e in document["edges"] if "E08" in e["code"]}
    assert verdicts == {"load-bearing"}
