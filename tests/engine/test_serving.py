"""Continuous batching: who runs, when a request ends, and that neighbours do not matter."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine import FinishReason, SamplingParams
from engine.core import EngineCore
from engine.request import Request
from tests.engine.harness import config, params, prompts, run

PROMPTS = prompts(6, longest=20)


@pytest.fixture(scope="module")
def alone(dense: Path) -> list[list[int]]:
    """What each prompt gives by itself."""
    return [run(config(dense), [prompt], params(30)).tokens[0] for prompt in PROMPTS]


def drive(core: EngineCore) -> None:
    while core.has_work():
        core.step()


def test_requests_that_come_later_join_the_batch(dense: Path, alone: list[list[int]]) -> None:
    core, requests = EngineCore(config(dense)), []
    for i, prompt in enumerate(PROMPTS):
        requests.append(Request(str(i), tuple(prompt), params(30)))
        core.add(requests[-1])
        for _ in range(4):
            core.step()
    drive(core)
    assert [request.output_ids for request in requests] == alone


def test_more_requests_than_slots_take_turns(dense: Path, alone: list[list[int]]) -> None:
    found = run(config(dense, max_num_seqs=2), PROMPTS, params(30))
    assert found.tokens == alone


def test_the_end_token_ends_a_request(dense: Path, alone: list[list[int]]) -> None:
    """The model has no habit of saying 0, so another token takes its part."""
    last = alone[0][7]
    first = alone[0].index(last)
    core = EngineCore(config(dense))
    core.scheduler._eos_ids = frozenset({last})
    stops = Request("stops", tuple(PROMPTS[0]), SamplingParams(max_tokens=30))
    goes_on = Request("goes on", tuple(PROMPTS[0]), SamplingParams(max_tokens=30, ignore_eos=True))
    core.add(stops)
    core.add(goes_on)
    drive(core)
    assert stops.output_ids == alone[0][: first + 1]
    assert stops.finish_reason is FinishReason.STOP
    assert goes_on.output_ids == alone[0]
    assert goes_on.finish_reason is FinishReason.LENGTH


def test_stop_token_ids_hold_even_when_the_end_token_is_ignored(
    dense: Path, alone: list[list[int]]
) -> None:
    last = alone[1][5]
    found = run(config(dense), [PROMPTS[1]], params(30, stop_token_ids=(last,)))
    assert found.tokens == [alone[1][: alone[1].index(last) + 1]]


def test_a_request_ends_where_the_context_is_full(dense: Path) -> None:
    found = run(config(dense, max_model_len=24), PROMPTS[:3], params(99))
    for prompt, output in zip(PROMPTS, found.tokens, strict=False):
        assert len(prompt) + len(output) == 24


def test_an_abort_frees_the_memory_and_leaves_the_others(
    dense: Path, alone: list[list[int]]
) -> None:
    core = EngineCore(config(dense))
    requests = [Request(str(i), tuple(p), params(30)) for i, p in enumerate(PROMPTS)]
    for request in requests:
        core.add(request)
    for _ in range(5):
        core.step()
    assert core.abort("2")
    assert not core.abort("2")
    again = Request("2", tuple(PROMPTS[2]), params(30))
    core.add(again)
    drive(core)
    assert requests[2].finish_reason is FinishReason.ABORT
    assert requests[2].output_ids == alone[2][: len(requests[2].output_ids)] != alone[2]
    assert again.output_ids == alone[2]
    assert [r.output_ids for r in requests if r.id != "2"] == alone[:2] + alone[3:]
    assert core.scheduler.cache.free_blocks == core.config.num_blocks
    assert core.scheduler.cache.free_slots == core.config.max_num_seqs


def test_a_preempted_request_goes_on_with_the_same_draws(dense: Path) -> None:
    sampling = [params(30, temperature=1.0, seed=i) for i in range(len(PROMPTS))]
    calm = run(config(dense), PROMPTS, sampling)
    pressed = run(config(dense, num_blocks=33), PROMPTS, sampling)
    assert (calm.preemptions, calm.tokens) == (0, pressed.tokens)
    assert pressed.preemptions > 0


def test_a_seed_decides_and_neighbours_do_not(dense: Path) -> None:
    one = params(30, temperature=1.0, seed=5)
    alone = run(config(dense), [PROMPTS[0]], one).tokens[0]
    others = [one, *[params(30, temperature=2.0, seed=i) for i in range(5)]]
    assert run(config(dense), PROMPTS, others).tokens[0] == alone
    other_seed = run(config(dense), [PROMPTS[0]], params(30, temperature=1.0, seed=6)).tokens[0]
    assert other_seed != alone


@pytest.mark.parametrize(
    "change", [{"repetition_penalty": 5.0}, {"presence_penalty": 9.0}, {"frequency_penalty": 9.0}],
    ids=lambda change: next(iter(change)),
)  # fmt: skip
def test_a_strong_penalty_stops_repetition(dense: Path, change: dict[str, float]) -> None:
    plain = run(config(dense), [PROMPTS[0]], params(30)).tokens[0]
    penalized = run(config(dense), [PROMPTS[0]], params(30, **change)).tokens[0]
    assert len(set(penalized)) == 30 > len(set(plain))
