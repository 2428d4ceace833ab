"""Option A changes when copies run, never what comes out; off, none of its parts exists."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from engine import Flags
from tests.engine.harness import WAYS, Result, config, params, prompts, run

pytestmark = pytest.mark.usefixtures("virtual_gpu")

PROMPTS = prompts(5, longest=9, seed=2)
TOKENS = [params(tokens) for tokens in (5, 12, 9, 12, 7)]  # ends apart: rows move, buckets shrink
KINDS = ["dense", pytest.param("moe", marks=pytest.mark.slow)]
# Finished requests are noticed one step later for each step in flight, so steps are composed alike
# only at the same depth.
ALIKE = {"depth 1": ["off, depth 1", "on, depth 1"],
         "depth 2": ["off", "off, host mirror", "on", "on, one slot"]}  # fmt: skip


@cache
def decode(model: Path, way: str) -> Result:
    device, changes = ("cpu", {}) if way == "plain" else ("cuda", WAYS[way])
    settings = config(model, device, max_num_seqs=3, max_num_batched_tokens=16, max_model_len=32,
                      num_blocks=32, **changes)  # fmt: skip
    return run(settings, PROMPTS, TOKENS)


@pytest.mark.parametrize("model", KINDS, indirect=True)
@pytest.mark.parametrize("way", WAYS)
def test_tokens_are_those_of_plain_eager_steps(way: str, model: Path) -> None:
    assert decode(model, way).tokens == decode(model, "plain").tokens


@pytest.mark.parametrize("model", KINDS, indirect=True)
@pytest.mark.parametrize("depth", [pytest.param("depth 1", marks=pytest.mark.slow), "depth 2"])
def test_pages_and_states_are_the_same_bytes(depth: str, model: Path) -> None:
    """Steps composed alike give the same bytes; the eager path is not padded, so it is not among
    them: its matrix products have other shapes."""
    first, *others = [decode(model, way).cache_bytes() for way in ALIKE[depth]]
    assert any(any(part) for part in first.values())
    for other in others:
        assert other == first


def test_off_has_no_part_of_option_a(dense: Path) -> None:
    counters = decode(dense, "off").counters
    assert (counters.staging_buffers, counters.staged_events, counters.second_slots) == (0, 0, 0)
    assert counters.drain_skips == 0 < counters.drains
    assert counters.captures > 0 < counters.replays


def test_on_engages(dense: Path) -> None:
    counters = decode(dense, "on").counters
    assert counters.staging_buffers == 5 * counters.staged_events > 0
    assert counters.second_slots > 0 < counters.drain_skips
    assert counters.row_moves > 0 < counters.captures
    assert counters.replays > 0


def test_one_slot_skips_drains_and_has_no_second_slot(dense: Path) -> None:
    counters = decode(dense, "on, one slot").counters
    assert counters.second_slots == 0 < counters.drain_skips


def test_flags_of_the_environment_reach_the_engine(
    dense: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VT_ASYNC_EXECUTOR", "1")
    monkeypatch.setenv("VT_ASYNC_EXECUTOR_TRACE", "1")
    settings = config(dense, "cuda", flags=Flags.from_environment())
    assert (settings.depth, settings.ring, settings.graphs) == (2, 2, True)


def test_the_trace_counts_skipped_drains(
    dense: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for trace in (False, True):
        settings = config(dense, "cuda", flags=Flags(executor=True, executor_trace=trace))
        run(settings, [[1, 2]], params(8))
        assert ("engine: drain skipped 1 times" in capsys.readouterr().out) is trace


@pytest.mark.parametrize("way", ["off", "on"])
def test_graphs_of_longer_uniform_steps(way: str, dense: Path) -> None:
    """R15: two rows of three tokens are not three rows of two."""
    settings = {"block_size": 4, "graph_query_len": 3, "max_num_seqs": 4}
    given = [[1, 2, 3], [4, 5, 6]], [[1, 2], [3, 4], [5, 6], [7, 8]]
    for prompt_set in given:
        cpu = run(config(dense), prompt_set, params(6))
        gpu = run(config(dense, "cuda", **settings, **WAYS[way]), prompt_set, params(6))
        assert gpu.tokens == cpu.tokens
        assert gpu.counters.eager_steps == 0 < gpu.counters.replays
