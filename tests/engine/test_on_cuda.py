"""The same engine on a real device, with real graphs; skipped where there is none.

    pytest tests/engine/test_on_cuda.py

What only a driver can show is here: allocations during captures. The rest repeats the claims that
the virtual GPU proves, with the device's own timing.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from engine import Flags
from engine.core import EngineCore
from engine.decode_graph import DecodeGraphs, GraphSlot
from engine.pools import GraphPool, PersistentDecodeInputPool
from tests.engine import gates
from tests.engine.corpus import prompt_ids, texts, unknown_words
from tests.engine.harness import OFF, ON, ONE_SLOT, WAYS, Result, config, params, prompts, run
from tests.engine.tiny import write_checkpoint

pytestmark = pytest.mark.cuda

PROMPTS = prompts(6, longest=20)


@pytest.fixture(autouse=True)
def deterministic(monkeypatch: pytest.MonkeyPatch) -> None:
    """Full float32 products, so that tokens can be compared with the CPU's."""
    monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)


def decode(model: Path, tokens: int = 64, **changes: Any) -> Result:
    settings = config(model, "cuda", num_blocks=256, **changes)
    return run(settings, PROMPTS, params(tokens))


@pytest.mark.parametrize("way", WAYS)
def test_tokens_are_those_of_the_cpu(way: str, model: Path) -> None:
    expected = run(config(model, num_blocks=256), PROMPTS, params(64)).tokens
    assert decode(model, **WAYS[way]).tokens == expected


def test_without_graphs(model: Path) -> None:
    expected = run(config(model, num_blocks=256), PROMPTS, params(64)).tokens
    assert decode(model, graphs=False).tokens == expected


def test_off_and_on_leave_the_same_bytes(model: Path) -> None:
    off, on = decode(model, flags=OFF), decode(model, flags=ON)
    assert off.cache_bytes() == on.cache_bytes()
    assert off.counters.staging_buffers == off.counters.staged_events == 0
    assert on.counters.drain_skips > 0 < on.counters.replays


@pytest.fixture(scope="module")
def wide(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Logits of a batch are larger than what a pool takes for small blocks at once."""
    return write_checkpoint(tmp_path_factory.mktemp("models") / "wide", vocab_size=1 << 17)


def ramp(model: Path, flags: Flags) -> Result:
    """Sizes ramp up and down, tables grow, both slots of each ring are captured."""
    each = [params(10 + 8 * i) for i in range(len(PROMPTS))]
    return run(config(model, "cuda", num_blocks=256, flags=flags), PROMPTS, each)


@pytest.mark.parametrize("flags", [OFF, ON], ids=["off", "on"])
def test_captures_take_nothing_from_the_driver(wide: Path, flags: Flags) -> None:
    """R8, R9, R10."""
    result = ramp(wide, flags)
    assert result.counters.captures > 4
    assert result.counters.rebuilt_slots > 0
    assert result.counters.capture_reserved_bytes == 0


def test_without_the_cold_pass_a_capture_asks_the_driver(
    wide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """E25: the counter of the test above can count."""

    def without_pool(self: DecodeGraphs, slot: GraphSlot) -> torch.Tensor:
        slot.warm = True
        if slot.staged_event is None:
            slot.copy_inputs()
        return self._forward(slot)

    monkeypatch.setattr(DecodeGraphs, "_cold", without_pool)
    assert decode(wide, flags=ON).counters.capture_reserved_bytes > 0


def test_without_a_block_for_each_slots_logits_a_capture_asks_the_driver(
    wide: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """R9: the other slot of the ring takes what the cold pass left."""
    cold = DecodeGraphs._cold

    def without_reserve(self: DecodeGraphs, slot: GraphSlot) -> torch.Tensor:
        logits = cold(self, slot)
        slot.reserve = None
        return logits

    monkeypatch.setattr(DecodeGraphs, "_cold", without_reserve)
    assert ramp(wide, ON).counters.capture_reserved_bytes > 0


@pytest.mark.parametrize("own_pool", [True, False])
def test_persistent_inputs_from_the_graphs_pool_starve_the_capture(own_pool: bool) -> None:
    """R8, E26: they take, and keep, a block that the cold pass left for the capture."""
    stream, size = torch.cuda.Stream(), 64 << 20
    with torch.cuda.stream(stream):
        graphs = GraphPool()
        inputs = PersistentDecodeInputPool() if own_pool else graphs
        with graphs.active():
            torch.zeros(size, dtype=torch.int8, device="cuda")  # the cold pass, let go of at once
        with inputs.active():
            held = torch.zeros(size, dtype=torch.int8, device="cuda")
        stream.synchronize()
        before = torch.cuda.memory_reserved()
        graph = torch.cuda.CUDAGraph()
        graph.capture_begin(pool=graphs.id)
        scratch = torch.zeros(size, dtype=torch.int8, device="cuda")
        graph.capture_end()
    assert held.numel() == scratch.numel()
    assert (torch.cuda.memory_reserved() == before) is own_pool


@pytest.mark.parametrize("kind", gates.GOLDEN)
def test_paged_engine(kind: str) -> None:
    gates.paged_engine(kind, times=3)


def test_async_serving(trained: Path) -> None:
    gates.async_serving(trained)


def trained_run(model: Path, flags: Flags, late: bool = False) -> Result:
    """Four prompts of the corpus; ``late``: MAIN is busy before each step, so its copies are."""
    settings = config(model, "cuda", flags=flags, block_size=64, num_blocks=16)

    def busy(core: EngineCore, step: int) -> None:
        if late:
            with torch.cuda.stream(core.runner._main):
                torch.cuda._sleep(20_000_000)  # cycles: about 10 ms

    return run(settings, prompt_ids(model, 4), params(26), each_step=busy)


def test_off_and_on_on_trained_checkpoints(trained: Path) -> None:
    off, on = trained_run(trained, OFF), trained_run(trained, ON)
    plain = run(config(trained, block_size=64, num_blocks=16), prompt_ids(trained, 4), params(26))
    assert off.tokens == on.tokens == plain.tokens
    assert off.cache_bytes() == on.cache_bytes()
    assert on.counters.replays > 10 and on.counters.drain_skips > 10


def test_poison_is_red_each_time_copies_are_late(trained: Path) -> None:
    """And the text stays coherent: that is why a reader does not notice."""
    poison = Flags(executor=True, executor_poison=True)
    right = trained_run(trained, ON, late=True).tokens
    assert right == trained_run(trained, ON).tokens
    poisoned = [trained_run(trained, poison, late=True).tokens for _ in range(3)]
    assert poisoned[0] != right
    assert poisoned[1:] == poisoned[:1] * 2
    assert all(unknown_words(text) == set() for text in texts(trained, poisoned[0]))


def test_no_double_buffer_passes(trained: Path) -> None:
    assert trained_run(trained, ONE_SLOT, late=True).tokens == trained_run(trained, ON).tokens


def test_bfloat16_is_the_same_off_and_on(tmp_path: Path) -> None:
    model = write_checkpoint(tmp_path, "moe", dtype="bfloat16")
    off, on = decode(model, flags=OFF), decode(model, flags=ON)
    assert (off.tokens, off.cache_bytes()) == (on.tokens, on.cache_bytes())
