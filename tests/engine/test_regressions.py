"""Bugs that engines of this kind have had: each with the mechanism in place, and without it.

Names R1 to R24 are those of the records that the bugs come from. Missing here: R3 is R2 on every
model; R12 (memory per shape), R18 (several devices) and R25 to R28 have no counterpart in this
engine; R14 is an edge (E05, E06), R8 to R10 need a driver's allocations (test_on_cuda).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch

from engine import DeviceStateError, Faults, Flags
from engine.core import EngineCore
from engine.decode_graph import DecodeGraphs, GraphSlot
from engine.inputs import Group, StepInputs, StepTensors
from engine.mirror import DeviceMirror
from engine.models import Qwen35
from engine.models.feed_forward import SparseMoE
from engine.output import AsyncOutputPool
from engine.request import Request, Status
from engine.scheduler import Scheduler
from tests.engine.harness import OFF, ON, Result, config, params, prompts, run

pytestmark = pytest.mark.usefixtures("virtual_gpu")

FOUR = [[3], [4, 5], [6, 7, 8], [9, 10]]


def decode(model: Path, tokens: int = 8, given: Any = FOUR, faults: str = "",
           **changes: Any) -> Result:  # fmt: skip
    settings = config(model, "cuda", max_num_seqs=4, **{"flags": ON, **changes})
    return run(settings, given, params(tokens), faults=Faults(faults) if faults else None)


@cache
def right(model: Path, tokens: int = 8) -> list[list[int]]:
    return run(config(model), FOUR, params(tokens)).tokens


def test_r1_poison_covers_each_source_and_nothing_else(dense: Path) -> None:
    """More tokens than rows: sources have different sizes, and each is zeroed over its own."""
    core = EngineCore(config(dense, "cuda", flags=ON, graph_query_len=3))
    graphs = core.runner._graphs
    assert graphs is not None
    slot = graphs._build((2, 3), 4)

    def poisoned(poison: Callable[[GraphSlot], None]) -> list[int]:
        """How many elements of each cell the poison has changed."""
        for cell in slot.host.cells():
            cell.fill_(7)
        poison(slot)
        return [int((cell != 7).sum()) for cell in slot.host.cells()]

    def of_one_size(slot: GraphSlot) -> None:
        """Each by the number of rows: a spec step has more tokens."""
        rows = slot.host.seq_lens.numel()
        for cell in (slot.host.positions, slot.host.slot_mapping, slot.host.seq_lens):
            cell[:rows].zero_()

    assert poisoned(graphs._poison) == [6, 6, 0, 2, 0]
    assert poisoned(of_one_size) == [2, 2, 0, 2, 0]


@pytest.mark.parametrize(
    "model", ["dense", pytest.param("moe", marks=pytest.mark.slow)], indirect=True
)
def test_r2_r3_decode_reads_the_devices_ids(model: Path) -> None:
    """The host has placeholders; whoever reads those decodes token 0 for ever."""
    assert decode(model).tokens == right(model)
    broken = decode(model, faults="E01.combine-host-ids").tokens
    assert [output[0] for output in broken] == [output[0] for output in right(model)]
    assert all(found[1:] != good[1:] for found, good in zip(broken, right(model), strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("graphs", [True, False])
@pytest.mark.parametrize("depth", [1, 2, 3])
def test_r4_concurrent_rows_past_the_first(dense: Path, depth: int, graphs: bool) -> None:
    flags = Flags(executor=graphs)
    assert decode(dense, depth=depth, graphs=graphs, flags=flags).tokens == right(dense)


def test_r4_rows_past_the_first_need_their_own_ids(dense: Path) -> None:
    combine = DeviceMirror.combine

    def first_row_only(self: DeviceMirror, ids: torch.Tensor, rows: int) -> None:
        combine(self, ids, min(rows, 1))

    expected = right(dense)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeviceMirror, "combine", first_row_only)
        broken = decode(dense).tokens
    assert broken[0] == expected[0]
    assert all(found != good for found, good in zip(broken[1:], expected[1:], strict=True))


def test_r5_prompt_rows_keep_their_ids_beside_carried_rows(dense: Path) -> None:
    """Host ids first, then the device's over the carried rows alone."""
    given = [[3], [4, 5, 6, 7, 8, 9]]
    chunked = {"max_num_batched_tokens": 4, "given": given}
    expected = run(config(dense), given, params(8)).tokens
    assert decode(dense, **chunked).tokens == expected

    def combine_all(self: DeviceMirror, ids: torch.Tensor, rows: int) -> None:
        ids.copy_(self._last_sampled[: ids.shape[0]])

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeviceMirror, "combine", combine_all)
        assert decode(dense, **chunked).tokens != expected


def test_r7_the_synchronous_loop_feeds_the_mirror_too(dense: Path) -> None:
    assert decode(dense, depth=1).tokens == right(dense)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DeviceMirror, "scatter", lambda self, sampled: None)
        assert decode(dense, depth=1).tokens != right(dense)


class Bystanders:
    """Objects that are made under MAIN once and should stay as they are: of many sizes, and more
    small ones than there can be free blocks, so that each of those is taken."""

    def __init__(self) -> None:
        self.made: list[torch.Tensor] = []

    def make(self, core: EngineCore) -> None:
        with torch.cuda.stream(core.runner._main):
            for elements in (*[4] * 120, 32, 128, 512, 2048, 8192):
                self.made.append(torch.full((elements,), 7.0, device="cuda"))

    def whole(self) -> bool:
        torch.cuda.synchronize()
        assert len(self.made) == 125
        return all(bool((object_ == 7.0).all()) for object_ in self.made)


@pytest.mark.parametrize(
    "flags", [ON, pytest.param(OFF, marks=pytest.mark.slow)], ids=["on", "off"]
)
def test_r11_nobody_else_gets_what_a_graph_uses(dense: Path, flags: Flags) -> None:
    """Objects made after the captures are whole after the replays, and so is the output."""

    def decoded() -> tuple[Result, Bystanders]:
        objects = Bystanders()

        def allocate(core: EngineCore, step: int) -> None:
            if core.counters.captures and not objects.made:
                objects.make(core)

        settings = config(dense, "cuda", flags=flags, block_size=16)  # no graph is rebuilt
        result = run(settings, FOUR, params(12), each_step=allocate)
        assert result.counters.replays > 2
        return result, objects

    result, objects = decoded()
    assert result.tokens == right(dense, 12)
    assert objects.whole()

    capture, forward = DecodeGraphs._capture, DecodeGraphs._forward
    scratch: list[torch.Tensor] = []

    def with_scratch(self: DecodeGraphs, slot: GraphSlot) -> None:
        """In a block of the main pool, which goes back to its free list."""
        scratch.append(torch.empty_like(slot.hidden))
        capture(self, slot)
        scratch.clear()

    def in_scratch(self: DecodeGraphs, slot: GraphSlot) -> torch.Tensor:
        if not torch.cuda.is_current_stream_capturing():
            return forward(self, slot)
        scratch[0].copy_(slot.hidden)
        return self._model(scratch[0], slot.device, slot.groups, self._cache)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodeGraphs, "_capture", with_scratch)
        patch.setattr(DecodeGraphs, "_forward", in_scratch)
        _, objects = decoded()
    assert not objects.whole()


class Workspace:
    """A buffer that all forward passes share; a longer one takes the place of a shorter."""

    def __init__(self, retire: bool) -> None:
        self._retire, self._kept = retire, list[torch.Tensor]()
        self._buffer: torch.Tensor | None = None
        self._forward = Qwen35.__call__

    def forward(self) -> Callable[..., torch.Tensor]:
        """In place of the model's."""

        def through(model: Qwen35, hidden: torch.Tensor, *rest: Any) -> torch.Tensor:
            tokens = hidden.shape[0]
            if self._buffer is None or self._buffer.shape[0] < tokens:
                if self._retire and self._buffer is not None:
                    self._kept.append(self._buffer)
                self._buffer = hidden.new_empty(max(tokens, 8), hidden.shape[1])
            self._buffer[:tokens].copy_(hidden)
            return self._forward(model, self._buffer[:tokens], *rest)

        return through


@pytest.mark.parametrize("retire", [True, False])
def test_r13_a_longer_prompt_between_replays(dense: Path, retire: bool) -> None:
    """A graph has the old workspace baked in: it may be retired, not freed."""
    first = Request("first", (3, 4), params(16))  # two: its first step is eager
    later = Request("later", tuple(prompts(1, longest=40, seed=8)[0]), params(3))
    objects = Bystanders()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Qwen35, "__call__", Workspace(retire).forward())
        core = EngineCore(config(dense, "cuda", flags=ON, block_size=64, num_blocks=8))
        core.add(first)
        for _ in range(8):
            core.step()
        replays = core.counters.replays
        assert replays > 0
        core.add(later)
        while core.counters.replays == replays:  # its steps are eager
            core.step()
        objects.make(core)
        while core.has_work():
            core.step()
    assert core.counters.replays > replays
    both = first, later
    expected = run(config(dense), [r.prompt_ids for r in both], [r.params for r in both])
    good = [r.output_ids for r in both] == expected.tokens and objects.whole()
    assert good is retire


def test_r15_rows_and_query_length_are_both_in_the_key(dense: Path) -> None:
    """Three rows of two tokens and two rows of three have as many tokens."""
    core = EngineCore(config(dense, "cuda", flags=ON, graph_query_len=3, max_num_seqs=4))
    for name, given in enumerate([[[1, 2, 3], [4, 5, 6]], [[1, 2], [3, 4], [5, 6]]] * 3):
        for i, ids in enumerate(given):
            core.add(Request(f"{name}.{i}", tuple(ids), params(1)))
        while core.has_work():
            core.step()
    graphs = core.runner._graphs
    assert graphs is not None
    assert {(2, 3), (4, 2)} <= set(graphs._rings)
    assert core.counters.captures == 2
    assert core.counters.eager_steps == 0


def test_r15_a_key_of_tokens_alone_mixes_up_shapes(dense: Path) -> None:
    next_slot, seen = DecodeGraphs._next_slot, dict[int, tuple[int, int]]()

    def by_tokens(self: DecodeGraphs, key: tuple[int, int], columns: int) -> GraphSlot:
        return next_slot(self, seen.setdefault(key[0] * key[1], key), columns)

    core = EngineCore(config(dense, "cuda", flags=ON, graph_query_len=4, max_num_seqs=4))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodeGraphs, "_next_slot", by_tokens)
        for name, given in enumerate([[[1, 2, 3, 4]] * 2, [[1, 2]] * 4]):
            for i, ids in enumerate(given):
                core.add(Request(f"{name}.{i}", tuple(ids), params(1)))
            if name:  # two rows of four, then four rows of two
                with pytest.raises(RuntimeError, match="size"):
                    core.step()
            while not name and core.has_work():
                core.step()


def test_r16_every_replay_gets_its_own_metadata(dense: Path) -> None:
    assert decode(dense, 12).tokens == right(dense, 12)

    def once(self: DecodeGraphs, slot: GraphSlot, inputs: StepInputs) -> None:
        if slot.graph is None:
            inputs.write(slot.host)
            slot.copy_inputs()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodeGraphs, "_refresh", once)
        assert decode(dense, 12).tokens != right(dense, 12)


def test_r17_a_block_table_that_is_too_short_is_refused() -> None:
    inputs = StepInputs([1], [24], [24], [[0, 1]], [25], [0], (Group(0, 1, 0, 1),), carried=0)
    with pytest.raises(DeviceStateError, match="block table of 1 columns for 2 blocks"):
        inputs.write(StepTensors.empty(1, 1, 1, device="cpu", pinned=False))


def test_r17_what_a_table_that_is_too_short_would_do(dense: Path) -> None:
    """The sizes come out wrong in one place; refused, or read from page 0 in silence."""
    given, write = [[3, 4, 5]], StepInputs.write

    def cut(self: StepInputs, target: StepTensors) -> None:
        columns = target.block_table.shape[1]
        write(replace(self, block_table=[blocks[:columns] for blocks in self.block_table]), target)

    expected = run(config(dense), given, params(12)).tokens
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodeGraphs, "_column_bucket", lambda self, columns: 1)
        with pytest.raises(DeviceStateError, match="block table of 1 columns"):
            decode(dense, 12, given)
        patch.setattr(StepInputs, "write", cut)
        assert decode(dense, 12, given).tokens != expected


def test_r19_a_failed_capture_is_an_error_and_not_an_empty_graph(dense: Path) -> None:
    forward = Qwen35.__call__

    def fails_in_capture(self: Qwen35, *arguments: Any) -> torch.Tensor:
        if torch.cuda.is_current_stream_capturing():
            raise RuntimeError("no kernel")
        return forward(self, *arguments)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Qwen35, "__call__", fails_in_capture)
        core = EngineCore(config(dense, "cuda", flags=ON))
        core.add(Request("0", (3,), params(9)))
        with pytest.raises(RuntimeError, match="no kernel"):
            while core.has_work():
                core.step()
    assert (core.counters.captures, core.counters.replays) == (0, 0)


def test_r19_an_empty_graph_would_give_logits_of_nothing(dense: Path) -> None:
    def swallowed(self: DecodeGraphs, slot: GraphSlot) -> None:
        slot.graph = torch.cuda.CUDAGraph()
        slot.graph.capture_begin(capture_error_mode="thread_local")
        slot.graph.capture_end()  # what failed in between is forgotten
        slot.logits = torch.zeros(slot.host.seq_lens.numel(), 64, device="cuda")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(DecodeGraphs, "_capture", swallowed)
        broken = decode(dense)
    assert broken.counters.replays > 0
    assert broken.tokens != right(dense)


@pytest.mark.slow
@pytest.mark.parametrize("cell", range(5), ids=StepTensors.__slots__)
def test_r20_every_staged_cell_is_read(dense: Path, cell: int) -> None:
    """A cell that nobody reads is dead weight and a false belief."""
    copy_inputs = GraphSlot.copy_inputs

    def spoil(self: GraphSlot) -> None:
        copy_inputs(self)
        if self.graph is not None:
            self.device.cells()[cell].zero_()

    good = decode(dense, 12)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GraphSlot, "copy_inputs", spoil)
        spoiled = decode(dense, 12)
    assert good.tokens == right(dense, 12)
    assert (spoiled.tokens, spoiled.cache_bytes()) != (good.tokens, good.cache_bytes())


def test_r22_no_step_makes_a_slot_or_a_buffer(dense: Path) -> None:
    def made() -> set[tuple[int, ...]]:
        seen: list[tuple[int, ...]] = []

        def count(core: EngineCore, step: int) -> None:
            c = core.counters
            seen.append((c.output_slots, c.staging_buffers, c.staged_events, c.captures))

        run(config(dense, "cuda", flags=ON, block_size=16), FOUR, params(12), each_step=count)
        assert len(seen) > 12
        return set(seen[6:])

    assert made() == {(2, 10, 2, 2)}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(AsyncOutputPool, "_acquire", AsyncOutputPool._grow)
        assert len(made()) > 6


def test_r23_steady_steps_do_not_drain(dense: Path) -> None:
    def steady(flags: Flags) -> list[tuple[int, int]]:
        """Drains and skipped drains before each of the later steps, from the first on."""
        seen: list[tuple[int, int]] = []

        def count(core: EngineCore, step: int) -> None:
            seen.append((core.counters.drains, core.counters.drain_skips))

        run(config(dense, "cuda", flags=flags, block_size=16), FOUR, params(14), each_step=count)
        later = seen[6:-2]
        return [(drains - later[0][0], skips - later[0][1]) for drains, skips in later]

    assert steady(ON) == [(0, i) for i in range(len(steady(ON)))]
    assert steady(OFF) == [(i, 0) for i in range(len(steady(OFF)))]


def test_r24_what_a_chunk_samples_is_not_output(dense: Path) -> None:
    given = [prompts(1, longest=30, seed=3)[0]]
    chunked = {"max_num_batched_tokens": 4, "given": given}
    expected = run(config(dense), given, params(6)).tokens
    assert decode(dense, 6, **chunked).tokens == expected

    def counts(self: Scheduler, row: Any) -> bool:
        return row.request.status is not Status.FINISHED

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "_counts", counts)
        assert decode(dense, 6, **chunked).tokens != expected


def test_e57_a_zombie_step_gives_nothing(dense: Path) -> None:
    """The end is seen one step late; what that step sampled is dropped."""
    good = right(dense)[0]
    last = good[3]
    ending = params(8, stop_token_ids=(last,))
    settings = config(dense, "cuda", flags=ON)
    expected = [good[: good.index(last) + 1]]
    zombies: list[int] = []

    def count(core: EngineCore, step: int) -> None:
        zombies.append(core.counters.wait_free_steps)

    assert run(settings, [FOUR[0]], ending, each_step=count).tokens == expected
    assert run(settings, [FOUR[0]], ending).counters.wait_free_steps == 1

    def counts(self: Scheduler, row: Any) -> bool:
        return bool(row.samples)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Scheduler, "_counts", counts)
        patch.setattr(Scheduler, "_finish", lambda self, request, reason: _finish(self, request))
        assert len(run(settings, [FOUR[0]], ending).tokens[0]) > len(expected[0])


def _finish(scheduler: Scheduler, request: Request) -> None:
    if request in scheduler.running:
        scheduler.running.remove(request)
    request.status = Status.FINISHED


@pytest.mark.parametrize(
    "flags",
    [ON, pytest.param(OFF, marks=pytest.mark.slow),
     pytest.param(Flags(device_mirror=False), marks=pytest.mark.slow)],
    ids=["on", "off", "host mirror"],
)  # fmt: skip
def test_e59_preemption_with_samples_in_flight(dense: Path, flags: Flags) -> None:
    """#26385, #28787, #38624: the token in flight is delivered once, and recomputing has it."""
    given = prompts(5, longest=20, seed=1)
    calm = run(config(dense), given, params(30))
    pressed = config(dense, "cuda", flags=flags, num_blocks=33, graphs=flags.executor)
    result = run(pressed, given, params(30))
    assert result.tokens == calm.tokens
    assert result.preemptions > 0


def test_e60_a_new_owner_starts_from_a_zero_state(dense: Path) -> None:
    one_slot: dict[str, Any] = {"given": FOUR[:2], "max_num_batched_tokens": 16}
    expected = right(dense)[:2]
    settings = {**one_slot, "flags": OFF}
    assert decode_on_one_slot(dense, "", **settings).tokens == expected
    assert decode_on_one_slot(dense, "E53.keep-state", **settings).tokens != expected


def decode_on_one_slot(model: Path, faults: str, given: Any, **changes: Any) -> Result:
    settings = config(model, "cuda", max_num_seqs=1, **changes)
    return run(settings, given, params(8), faults=Faults(faults) if faults else None)


def test_e35_inert_rows_touch_nothing(dense: Path) -> None:
    """Three rows in a bucket of four; a live one would write page 0 and state 0."""
    padded: Callable[[str], Result] = lambda faults: decode(  # noqa: E731
        dense, 8, FOUR[:3], faults
    )
    assert padded("").tokens == right(dense)[:3]
    assert padded("E35.live-padding").tokens != right(dense)[:3]


def test_e03_rows_move_with_their_ids(dense: Path) -> None:
    each = [params(4), params(9), params(9)]
    settings = config(dense, "cuda", flags=ON, max_num_seqs=4)
    expected = run(config(dense), FOUR[:3], each).tokens
    moved = run(settings, FOUR[:3], each)
    assert moved.tokens == expected
    assert moved.counters.row_moves > 0
    assert run(settings, FOUR[:3], each, faults=Faults("E03.skip-row-moves")).tokens != expected


def test_poison_is_harmless_once_the_copies_are_done(dense: Path) -> None:
    """Each step is finished at once here, as on an idle stream: a poison that shows nothing proves
    nothing. That it shows where the copies are late is proved in test_edges.
    """
    faults = Faults("E08.poison")
    settings = config(dense, "cuda", flags=ON, max_num_seqs=4, block_size=16)
    assert run(settings, FOUR, params(10), faults=faults).tokens == right(dense, 10)
    assert faults.hits["E08.poison"] > 0


def test_e39_a_fork_that_is_not_joined_cannot_be_captured(moe: Path) -> None:
    assert decode(moe, 8).tokens == right(moe)

    def forked(self: SparseMoE, x: torch.Tensor) -> torch.Tensor:
        assert self._aux is not None
        if torch.cuda.is_current_stream_capturing():
            self._aux.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._aux):
                self._shared_expert(x)
        return self._routed(x) + self._shared_expert(x)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(SparseMoE, "__call__", forked)
        with pytest.raises(RuntimeError, match="unjoined"):
            decode(moe, 8)
