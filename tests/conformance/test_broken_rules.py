"""Every rule has tests that fail on a virtual GPU which breaks it: ``VirtualGPU(break_rule=N)``."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
import torch

from tests.child import ChildDied, ChildFailure, in_child, preload
from tests.conformance import test_rule_01_copies as rule_01
from tests.conformance import test_rule_02_blocking as rule_02
from tests.conformance import test_rule_03_streams as rule_03
from tests.conformance import test_rule_04_events as rule_04
from tests.conformance import test_rule_05_wait_stream as rule_05
from tests.conformance import test_rule_06_allocator as rule_06
from tests.conformance import test_rule_07_pinned as rule_07
from tests.conformance import test_rule_08_graphs as rule_08
from tests.conformance import test_rule_09_bytes as rule_09
from tests.conformance import test_rule_10_queries as rule_10
from tests.conformance import test_rule_11_host_access as rule_11
from tests.conformance import test_rule_12_errors as rule_12
from tests.conformance import test_rule_13_autograd as rule_13
from tests.conformance import test_rule_14_random as rule_14
from tests.conformance.conftest import run
from tests.conformance.values import pinned

Test = tuple[Callable[..., object], dict[str, Any]]
GRAD = {"mode": "grad"}

# Rule -> how the switch breaks it, and tests that must notice.
BROKEN: dict[int, tuple[str, list[Test]]] = {
    1: ("a pinned source is read at the call", [
        (rule_01.test_pinned_source_is_read_at_execution, GRAD),
        (rule_01.test_two_copies_from_one_pinned_source_both_read_late, {}),
    ]),
    2: ("blocking copies do not wait", [
        (rule_02.test_blocking_copy_to_the_device_waits, {**GRAD, "host": pinned}),
        (rule_02.test_blocking_copy_to_the_host_waits, {**GRAD, "host": pinned}),
    ]),
    3: ("the pool of streams has no end", [
        (rule_03.test_the_33rd_stream_is_the_first_again, {"priority": 0}),
        (rule_03.test_the_33rd_stream_shares_the_queue_of_the_first, {}),
    ]),
    4: ("a wait binds to the first record", [
        (rule_04.test_a_wait_binds_to_the_latest_record_before_it, {}),
    ]),
    5: ("wait_stream covers later work", [
        (rule_05.test_wait_stream_does_not_cover_later_work, GRAD),
    ]),
    6: ("record_stream postpones nothing", [
        (rule_06.test_record_stream_postpones_reuse, GRAD),
        (rule_06.test_record_stream_of_several_streams, {}),
    ]),
    7: ("a freed pinned block is reused at once", [
        (rule_07.test_a_freed_block_is_protected_until_the_copy_from_it_is_done, GRAD),
        (rule_07.test_a_temporary_pinned_copy_is_safe, GRAD),
    ]),
    8: ("capture runs what it captures", [
        (rule_08.test_capture_runs_nothing, GRAD),
        (rule_08.test_a_fork_and_a_join, {}),
    ]),
    9: ("all fresh memory holds one pattern", [
        (rule_09.test_the_pattern_differs_by_generation, {}),
    ]),
    10: ("queries say yes", [
        (rule_10.test_event_query_is_false_while_the_work_is_pending, GRAD),
        (rule_10.test_stream_query_is_false_while_the_work_is_pending, {}),
    ]),
    11: ("numpy() copies pinned memory", [
        (rule_11.test_writing_through_numpy_changes_a_pinned_source, GRAD),
        (rule_11.test_reading_through_numpy_shows_a_pinned_destination_as_it_is, {}),
    ]),
    12: ("operands may be anywhere", [
        (rule_12.test_operands_on_host_and_device_are_refused, {**GRAD, "name": "add"}),
        (rule_12.test_pinned_memory_is_host_memory, {}),
    ]),
    13: ("backward runs on the caller's stream", [
        (rule_13.test_backward_runs_on_the_stream_of_forward, {}),
        (rule_13.test_hooks_run_on_the_stream_of_their_node, {}),
    ]),
    14: ("random numbers take the seed of the moment they are drawn", [
        (rule_14.test_seed_and_offset_are_taken_at_enqueue, {**GRAD, "name": "rand"}),
        (rule_14.test_seed_and_offset_are_taken_at_enqueue, {**GRAD, "name": "dropout"}),
    ]),
}  # fmt: skip


def failing(rule: int, tests: list[Test]) -> list[str]:
    """Names of those that fail while this rule is broken (0: none is)."""
    names = []
    for test, arguments in tests:
        try:
            in_child(partial(run, test, "virtual-lazy", break_rule=rule, **arguments))
        except ChildDied:
            raise  # a test that hangs has noticed nothing
        except ChildFailure:
            names.append(test.__name__)
    return names


def test_every_rule_can_be_broken() -> None:
    assert list(BROKEN) == list(range(1, 15))


@pytest.mark.parametrize("rule", BROKEN)
def test_a_broken_rule_fails_its_tests(rule: int) -> None:
    preload()
    how, tests = BROKEN[rule]
    assert not failing(0, tests)
    noticed = failing(rule, tests)
    print(f"rule {rule} broken ({how}): {', '.join(noticed) or 'nothing fails'}")
    assert noticed == [test.__name__ for test, _ in tests]


def test_no_switch_breaks_more_than_its_rule() -> None:
    """A run that breaks a rule still computes: the tests fail by that rule, not by a crash."""
    preload()

    def work() -> list[float]:
        from redgreen.virtual import VirtualGPU

        found = []
        for rule in BROKEN:
            with VirtualGPU(break_rule=rule):
                found.append((torch.ones(3, device="cuda") * 2).sum().item())
        return found

    assert in_child(work) == [6.0] * len(BROKEN)
