"""What the trained checkpoints say: right is readable and true, wrong can be seen."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import LLM, Flags
from engine.checkpoints.corpus import PROMPTS
from redgreen.isolation import virtual_gpu
from redgreen.schedule import LAZY, SERIAL
from tests.engine.corpus import CHECKPOINTS, prompt_ids, texts, unknown_words, wrong
from tests.engine.harness import ON, config, params, run

ANSWERS = (
    "The capital of Japan is Tokyo", "Oslo is the capital of Norway, a country in Europe.",
    "What colour is snow? The colour of snow is white.", "The day after Friday is Saturday.",
    "If you add two and three, you get five.",
    "Berlin is the capital of Germany, a country in Europe.",
    "Cairo is the capital of Egypt, a country in Africa.", "The colour of grass is green.",
    "The day after Sunday is Monday.", "The capital of Italy is Rome",
    "Hanoi is the capital of Vietnam, a country in Asia.",
    "What colour is a lemon? The colour of a lemon is yellow.",
    "A lion roars, but a frog croaks.", "The day after Monday is Tuesday.",
    "Suva is the capital of Fiji, a country in Oceania.", "If you add one and one, you get two.",
    "A dog barks", "A bee buzzes",
)  # fmt: skip
POISON = Flags(executor=True, executor_poison=True)


def said(trained: Path, count: int, tokens: int, flags: Flags) -> list[str]:
    """On the virtual GPU, with pages that no table outgrows, so that graphs are replayed."""
    settings = config(trained, "cuda", flags=flags, block_size=64, max_num_seqs=count)
    return texts(trained, run(settings, prompt_ids(trained, count), params(tokens)).tokens)


def test_a_checkpoint_is_small(trained: Path) -> None:
    assert sum(path.stat().st_size for path in trained.iterdir()) <= 10_000_000


def test_the_answers_are_right(trained: Path) -> None:
    settings = config(trained, max_num_seqs=24, num_blocks=24 * 32)
    with LLM(settings) as llm:
        completions = llm.generate(PROMPTS, params(40, ignore_eos=False))
    found = [prompt + c.text for prompt, c in zip(PROMPTS, completions, strict=True)]
    assert [wrong(text) for text in found] == [[]] * 24
    for answer in ANSWERS:
        assert any(text.startswith(answer) for text in found), answer


def test_the_check_of_answers_can_fail() -> None:
    assert wrong("The day after Friday is Saturday. The capital of Ghana is Ac") == []
    assert wrong("The day after Friday is Sunday.") == ["The day after Friday is Sunday."]
    assert wrong("A dog barks. The capital of Peru is Lima is") == [
        "A dog barks.", "The capital of Peru is Lima is",
    ]  # fmt: skip


@pytest.mark.parametrize("checkpoint", ["dense", pytest.param("moe", marks=pytest.mark.slow)])
def test_poison_is_coherent_and_wrong_where_copies_are_late(checkpoint: str) -> None:
    """Sentences lose their ends, since zeroed positions tell the model that it is at the start."""
    trained = CHECKPOINTS / checkpoint
    with virtual_gpu(LAZY, frozenset(), allocator="native", step_limit=None):
        good, poisoned = (said(trained, 4, 26, flags) for flags in (ON, POISON))
    assert [wrong(text) for text in good] == [[]] * 4
    assert poisoned != good
    assert any(wrong(text) for text in poisoned)
    assert [unknown_words(text) for text in poisoned] == [set()] * 4


@pytest.mark.slow
def test_poison_is_invisible_where_every_copy_is_done_at_once(trained: Path) -> None:
    with virtual_gpu(SERIAL, frozenset(), allocator="native", step_limit=None):
        assert said(trained, 2, 26, POISON) == said(trained, 2, 26, ON)
