"""What each program of the corpus must yield, written down before any of them was run.

What belongs to a line stands on it, as a comment at its end (several are separated by semicolons):

    # edge: load-bearing        the sync call on this line and its verdict; "any": not asserted,
    # edge NAME: masked         "absent": never called in this program. Named for masking sets
    # first NAME, # second NAME the two accesses of the race NAME (no name: the only one)
    # buffer NAME               where the memory of that race is allocated
    # diag: KIND                a diagnostic on this line; on several lines: on one of them

An access inside a graph may be reported where it was captured or where it was replayed, and the
memory of a use after free by either of its allocations; then several lines carry the mark.
"""

from __future__ import annotations

import importlib
import inspect
import re
import tokenize
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from types import ModuleType

VERDICTS = frozenset({"load-bearing", "masked", "redundant", "unexercised", "inconclusive"})
_MARK = re.compile(
    r"(?P<kind>edge|first|second|buffer|diag)(?: (?P<name>[\w-]+))?(?:: (?P<value>[\w-]+))?"
)


@dataclass(frozen=True, slots=True)
class Mark:
    """One comment: ``kind`` is edge, first, second, buffer or diag."""

    line: int
    kind: str
    name: str = ""
    value: str = ""


@dataclass(frozen=True, slots=True)
class Race:
    """A race that must be listed; its lines are those marked with ``name``."""

    hazard: str  # or several that would do, separated by "/"
    name: str = ""


@dataclass(frozen=True, slots=True)
class Expect:
    """What one program must yield. ``name`` is the test, ``subject`` "module:function"."""

    name: str
    subject: str
    green: str
    args: tuple[object, ...] = ()
    races: tuple[Race, ...] = ()
    benign: bool = False  # races that change nothing may be listed
    edges: Mapping[str, str] = field(default_factory=dict)  # verdicts that depend on the arguments
    masking: tuple[frozenset[str], ...] = ()  # minimal sets, by the names of edges
    helpers: tuple[str, ...] = ()  # other functions or classes of the module whose marks count
    right: str = ""  # function that returns the right output
    reference: str | None = None  # "identical" or "different"; None: not compared
    without: tuple[str, ...] = ()  # diagnostics that must not appear, beside the exact ones
    instances: Mapping[str, int] = field(default_factory=dict)

    @property
    def module(self) -> ModuleType:
        return importlib.import_module(f"tests.corpus.{self.subject.partition(':')[0]}")

    @property
    def function(self) -> Callable[..., object]:
        return getattr(self.module, self.subject.partition(":")[2])

    @property
    def reference_function(self) -> Callable[..., object] | None:
        return getattr(self.module, self.right) if self.right else None

    @property
    def path(self) -> Path:
        return Path(inspect.getfile(self.module))

    def marks(self, kind: str, name: str | None = None) -> list[Mark]:
        """The marks of this program: those in its function and its helpers."""
        spans = [self.function, *(getattr(self.module, helper) for helper in self.helpers)]
        lines: set[int] = set()
        for span in spans:
            source, start = inspect.getsourcelines(span)
            lines.update(range(start, start + len(source)))
        return [
            mark
            for mark in read_marks(self.path)
            if mark.line in lines and mark.kind == kind and name in (None, mark.name)
        ]

    def lines(self, kind: str, name: str) -> set[int]:
        return {mark.line for mark in self.marks(kind, name)}


@cache
def read_marks(path: Path) -> tuple[Mark, ...]:
    """All marks of a file. A comment that begins like a mark and is none is an error."""
    marks: list[Mark] = []
    with path.open("rb") as file:
        for token in tokenize.tokenize(file.readline):
            if token.type != tokenize.COMMENT or not token.line[: token.start[1]].strip():
                continue
            for text in token.string.lstrip("# ").split(";"):
                match = _MARK.fullmatch(text.strip())
                if match is None:
                    if re.match(r"(edge|first|second|buffer|diag)\b", text.strip()):
                        raise ValueError(f"{path.name}:{token.start[0]}: not a mark: {text}")
                    continue
                marks.append(
                    Mark(token.start[0], match["kind"], match["name"] or "", match["value"] or "")
                )
    return tuple(marks)


def proved(name: str, subject: str, **more: object) -> Expect:
    """Right on every schedule: the output is compared with ``right()``."""
    given: dict[str, object] = {"right": "right", "reference": "identical", **more}
    return Expect(f"{name}_is_proved", subject, "proved", **given)  # type: ignore[arg-type]


def refuted(name: str, subject: str, *races: Race, **more: object) -> Expect:
    """Two legal schedules of the program as written differ."""
    return Expect(f"{name}_is_refuted", subject, "refuted", races=races, **more)  # type: ignore[arg-type]


def wrong(name: str, subject: str, **more: object) -> Expect:
    """The same on every schedule, and different from ``right()``."""
    given: dict[str, object] = {"right": "right", "reference": "different", **more}
    return Expect(f"{name}_is_wrong", subject, "proved", **given)  # type: ignore[arg-type]


def _sets(*names: str) -> tuple[frozenset[str], ...]:
    return tuple(frozenset(text.split()) for text in names)


def _records() -> tuple[Expect, ...]:
    b01, b03, b04 = "b01_recycled_row", "b03_store_before_compute", "b04_load_over_live_block"
    b05, b06, b07 = "b05_d2h_read_too_early", "b06_wait_before_record", "b07_event_rearmed"
    b09, b10, b11 = "b09_ping_pong_parity", "b10_one_direction", "b11_captured_copy_source"
    b13, b15 = "b13_allocated_under_wrong_stream", "b15_record_stream_on_owner"
    b16, b17 = "b16_free_on_owning_stream", "b17_one_op_on_wrong_stream"
    b20, b21, b22 = "b20_ring_depth", "b21_staging_overwritten", "b22_flag_is_no_edge"
    b25, b26 = "b25_dead_device_sync", "b26_covered_by_each_other"
    b27, b28 = "b27_record_stream_on_owner", "b28_static_output_overwritten"
    b32, b34, b36 = "b32_replay_skips_hook", "b34_abort_mid_transfer", "b36_wait_on_unused_stream"
    b40, b41 = "b40_pageable_tail", "b41_kernel_on_default_stream"
    b42, b43 = "b42_getter_switches_stream", "b43_freed_by_resize"
    b44, b47 = "b44_events_right_lifetime_wrong", "b47_join_after_onload"
    b48, b49 = "b48_view_is_no_read", "b49_shared_input_mutated"
    b53, b56 = "b53_event_without_waiter", "b56_shared_graph_pool"
    b61, b64 = "b61_one_event_many_streams", "b64_prefetched_batch_reused"
    b65, b66 = "b65_depth_is_a_knob", "b66_threaded_process_group"
    b70, b72, b74 = "b70_right_by_unpinning", "b72_staged_twice", "b74_acknowledged_too_early"
    no_record_or_wait = {"record": "redundant", "wait": "redundant"}
    no_wait_made = {"record": "redundant", "wait": "absent"}
    return (
        refuted("b01_without_back_wait", f"{b01}:buggy", Race("WAR")),
        proved("b01_with_back_wait", f"{b01}:fixed"),
        refuted("b03_without_wait", f"{b03}:buggy", Race("RAW")),
        proved("b03_with_wait", f"{b03}:fixed"),
        refuted("b04_without_wait", f"{b04}:buggy", Race("WAR")),
        proved("b04_with_wait", f"{b04}:fixed"),
        proved("b04_store_and_load", f"{b04}:both", right="right_both"),
        refuted("b05_without_sync", f"{b05}:buggy", Race("HOST-RAW")),
        refuted("b05_numpy_without_sync", f"{b05}:buggy_numpy", Race("HOST-RAW")),
        refuted("b05_clone_without_sync", f"{b05}:buggy_clone", Race("HOST-RAW")),
        proved("b05_with_sync", f"{b05}:fixed"),
        proved(
            "b05_with_two_syncs",
            f"{b05}:covered",
            masking=_sets("record device", "event device"),
        ),
        refuted("b06_wait_before_record", f"{b06}:buggy", Race("RAW")),
        refuted("b06_wait_one_step_behind", f"{b06}:buggy_iterated", Race("RAW")),
        proved("b06_record_before_wait", f"{b06}:fixed"),
        refuted("b06_flag_before_record", f"{b06}:buggy_threads", Race("RAW")),
        proved("b06_flag_after_record", f"{b06}:fixed_threads"),
        proved("b07_event_rearmed", f"{b07}:buggy", masking=_sets("first again")),
        proved("b07_event_per_step", f"{b07}:fixed", right="right_both"),
        refuted("b09_parity_reset", f"{b09}:parity", Race("WAR")),
        proved("b09_no_back_wait_two_steps", f"{b09}:no_reverse", args=(2,)),
        refuted("b09_no_back_wait_three_steps", f"{b09}:no_reverse", Race("WAR"), args=(3,)),
        proved("b09_full_wait", f"{b09}:full_wait"),
        proved("b09_event_per_buffer", f"{b09}:per_buffer", without=("over-wait",)),
        refuted("b10_one_direction", f"{b10}:buggy", Race("WAR")),
        proved("b10_both_directions", f"{b10}:fixed", without=("over-wait",)),
        wrong("b11_released_after_capture", f"{b11}:buggy"),
        proved("b11_retained_by_graph", f"{b11}:fixed"),
        refuted("b11_overwritten_after_replay", f"{b11}:overwritten", Race("HOST-WAR")),
        proved("b11_overwritten_after_sync", f"{b11}:overwritten_after_sync"),
        refuted("b13_default_allocation", f"{b13}:buggy", Race("UAF")),
        refuted("b13_record_of_idle_stream", f"{b13}:buggy_wrong_stream", Race("UAF")),
        proved("b13_with_record_stream", f"{b13}:fixed_record_stream"),
        proved("b13_with_back_wait", f"{b13}:fixed_back_wait"),
        proved("b13_side_allocation", f"{b13}:fixed_allocation"),
        proved("b13_side_allocation_and_fill", f"{b13}:dead"),
        refuted("b15_record_stream_on_owner", f"{b15}:buggy", Race("UAF")),
        proved("b15_record_stream_on_user", f"{b15}:fixed"),
        refuted("b16_without_back_wait", f"{b16}:buggy", Race("UAF")),
        proved("b16_with_back_wait", f"{b16}:fixed_back_wait"),
        proved("b16_with_record_stream", f"{b16}:fixed_record_stream"),
        proved("b16_with_reference", f"{b16}:fixed_keep_reference", right="right_kept"),
        refuted("b17_cast_on_compute", f"{b17}:buggy", Race("RAW")),
        proved("b17_cast_on_offload", f"{b17}:fixed"),
        proved("b20_nnn", f"{b20}:ring", args=("nnn",)),
        proved("b20_nnb", f"{b20}:ring", args=("nnb",)),
        proved("b20_nnnn", f"{b20}:ring", args=("nnnn",)),
        refuted("b20_nbn", f"{b20}:ring", Race("HOST-WAR"), args=("nbn",), edges=no_record_or_wait),
        refuted("b20_nbb", f"{b20}:ring", Race("HOST-WAR"), args=("nbb",), edges=no_wait_made),
        refuted("b20_bbb", f"{b20}:ring", Race("HOST-WAR"), args=("bbb",), edges=no_wait_made),
        refuted("b20_nbnn", f"{b20}:ring", Race("HOST-WAR"), args=("nbnn",)),
        refuted(
            "b20_nbbn", f"{b20}:ring", Race("HOST-WAR"), args=("nbbn",), edges=no_record_or_wait
        ),
        refuted("b21_in_place", f"{b21}:buggy", Race("HOST-WAR")),
        proved("b21_fresh_blocks", f"{b21}:fixed_fresh"),
        proved("b21_with_event", f"{b21}:fixed_event"),
        refuted("b22_without_consumed", f"{b22}:buggy", Race("WAR")),
        proved("b22_with_consumed", f"{b22}:fixed"),
        refuted("b22_threads_with_flag", f"{b22}:buggy_threads", Race("WAR")),
        proved("b22_threads_with_event", f"{b22}:fixed_threads"),
        proved("b25_dead_sync", f"{b25}:dead"),
        proved("b25_sync_for_copy_stream", f"{b25}:twin_copy_stream"),
        proved("b25_sync_for_host", f"{b25}:twin_host_read", right="right_host"),
        proved(
            "b26_two_ways",
            f"{b26}:both",
            masking=_sets(
                "read-record verify-record",
                "read-record verify-wait",
                "read-wait verify-record",
                "read-wait verify-wait",
                "plan verify-record",
                "plan verify-wait",
            ),
        ),
        proved("b26_one_way", f"{b26}:without_verify"),
        proved("b27_record_stream_on_owner", f"{b27}:dead"),
        proved("b27_record_stream_across", f"{b27}:twin"),
        refuted("b27_without_record_stream", f"{b27}:twin_without", Race("UAF")),
        refuted("b28_without_event", f"{b28}:buggy", Race("WAR", "in"), Race("WAR", "out")),
        proved("b28_with_event", f"{b28}:fixed"),
        proved("b28_one_stream", f"{b28}:dead"),
        refuted(
            "b28_threads_with_flag", f"{b28}:buggy_threads", Race("WAR", "in"), Race("WAR", "out")
        ),
        proved("b32_eager_hook", f"{b32}:eager"),
        refuted("b32_captured_hook", f"{b32}:buggy", Race("RAW")),
        proved("b32_hook_before_replay", f"{b32}:fixed"),
        refuted("b34_immediate_release", f"{b34}:buggy", Race("WAW")),
        proved("b34_with_wait", f"{b34}:fixed"),
        proved("b34_deferred_release", f"{b34}:fixed_deferred_release"),
        refuted("b36_copy_on_other_stream", f"{b36}:buggy", Race("WAR")),
        proved("b36_copy_on_load_stream", f"{b36}:fixed"),
        proved("b36_write_back_both_ways", f"{b36}:write_back", right="right_write_back"),
        refuted("b40_pageable_tail", f"{b40}:buggy", Race("RAW")),
        proved("b40_with_wait", f"{b40}:fixed"),
        proved("b40_blocking_copy", f"{b40}:dead"),
        refuted("b41_on_default_stream", f"{b41}:buggy", Race("RAW", "a"), Race("RAW", "b")),
        proved("b41_on_current_stream", f"{b41}:fixed"),
        proved("b41_paged_on_default_stream", f"{b41}:paged"),
        refuted("b41_paged_on_current_stream", f"{b41}:paged_moved", Race("RAW")),
        refuted("b42_switch_without_wait", f"{b42}:buggy", Race("RAW")),
        proved("b42_switch_with_wait", f"{b42}:fixed"),
        proved("b42_switch_before_work", f"{b42}:dead"),
        refuted("b43_resize_without_record_stream", f"{b43}:buggy_resize", Race("UAF")),
        refuted("b43_data_without_record_stream", f"{b43}:buggy_data", Race("UAF")),
        proved("b43_with_record_stream", f"{b43}:fixed"),
        proved("b43_three_streams", f"{b43}:chain", right="right_chain"),
        refuted("b44_without_record_stream", f"{b44}:buggy", Race("UAF")),
        proved("b44_with_record_stream", f"{b44}:fixed"),
        proved("b44_latent", f"{b44}:latent"),
        refuted("b47_without_join", f"{b47}:buggy", Race("RAW")),
        proved("b47_with_join", f"{b47}:fixed"),
        proved(
            "b47_all_three",
            f"{b47}:all_three",
            right="right_steps",
            masking=_sets("before recorded"),
        ),
        proved("b47_no_record_stream", f"{b47}:no_record_stream", right="right_steps"),
        proved("b47_no_wait_before", f"{b47}:no_wait_before", right="right_steps"),
        proved("b48_unbind_before_sync", f"{b48}:unbind"),
        refuted("b48_tolist_before_sync", f"{b48}:tolist", Race("HOST-RAW")),
        proved("b48_numpy_view_before_sync", f"{b48}:numpy_view"),
        proved("b48_getter", f"{b48}:getter", helpers=("Result",)),
        refuted("b49_shared_input", f"{b49}:buggy", Race("WAR")),
        proved("b49_recorded_clone", f"{b49}:fixed"),
        proved("b49_allocation_after_join", f"{b49}:dead"),
        wrong("b49_flattened", f"{b49}:flattened"),
        refuted("b53_ignored_event", f"{b53}:ignoring", Race("RAW")),
        proved("b53_awaited_event", f"{b53}:waiting"),
        proved("b56_any_order", f"{b56}:serial"),
        wrong("b56_read_too_late", f"{b56}:read_too_late"),
        refuted("b56_at_once", f"{b56}:at_once", Race("UAF/RAW/WAR/WAW")),
        proved("b56_one_after_the_other", f"{b56}:one_after_the_other"),
        refuted("b61_one_event", f"{b61}:buggy", Race("RAW")),
        proved("b61_event_per_stream", f"{b61}:fixed"),
        refuted("b64_without_back_wait", f"{b64}:buggy", Race("UAF"), helpers=("Unordered",)),
        proved("b64_with_back_wait", f"{b64}:fixed", helpers=("Ordered",)),
        *(
            refuted(f"b65_depth_{depth}_no_wait", f"{b65}:no_wait", Race("WAR"), args=(depth,))
            for depth in (1, 2, 3)
        ),
        proved("b65_depth_4_no_wait", f"{b65}:no_wait", args=(4,)),
        *(
            proved(f"b65_depth_{d}_oldest", f"{b65}:oldest", args=(d,), without=("over-wait",))
            for d in (1, 2, 3)
        ),
        *(proved(f"b65_depth_{d}_newest", f"{b65}:newest", args=(d,)) for d in (2, 3)),
        refuted("b66_without_edges", f"{b66}:buggy", Race("RAW", "in"), Race("RAW", "out")),
        proved("b66_with_edges", f"{b66}:fixed"),
        refuted("b70_pinned", f"{b70}:staging", Race("HOST-WAR"), args=(True,)),
        proved("b70_pageable", f"{b70}:staging", args=(False,)),
        refuted("b72_one_buffer", f"{b72}:buggy", Race("HOST-WAR")),
        proved("b72_two_buffers", f"{b72}:fixed_two_buffers"),
        proved("b72_with_sync", f"{b72}:fixed_sync"),
        refuted("b74_one_acknowledgement", f"{b74}:buggy", Race("WAR")),
        proved("b74_both_acknowledgements", f"{b74}:fixed"),
    )


def _extras() -> tuple[Expect, ...]:
    prefetch = ("Prefetcher", "_consume")
    return (
        proved("prefetcher_recorded", "extra_prefetcher:recorded", helpers=prefetch),
        refuted(
            "prefetcher_unrecorded",
            "extra_prefetcher:unrecorded",
            Race("UAF"),
            helpers=prefetch,
            edges={"record": "absent"},
        ),
        proved("double_buffer", "extra_double_buffer:two"),
        refuted("double_buffer_collapsed", "extra_double_buffer:collapsed", Race("HOST-RAW")),
        proved("triple_buffer", "extra_triple_buffer:ring"),
        refuted("triple_buffer_one_way", "extra_triple_buffer:one_way", Race("WAR")),
        proved("ping_pong", "extra_ping_pong:both_ways"),
        refuted("ping_pong_one_way", "extra_ping_pong:one_way", Race("WAR")),
        proved("gradient_buckets_joined", "extra_gradient_buckets:joined"),
        proved(
            "gradient_buckets_joined_twice",
            "extra_gradient_buckets:joined_twice",
            masking=_sets("each last"),
        ),
        refuted("gradient_buckets_not_joined", "extra_gradient_buckets:not_joined", Race("RAW")),
        proved("offload_recorded", "extra_offload:recorded"),
        refuted("offload_unrecorded", "extra_offload:unrecorded", Race("UAF")),
        refuted("offload_fetched_too_early", "extra_offload:fetched_too_early", Race("RAW")),
        proved("kv_pages", "extra_kv_paging:pages"),
        proved("kv_heads", "extra_kv_paging:heads"),
        refuted("kv_double_booked", "extra_kv_paging:double_booked", Race("WAR")),
        proved("numpy_views_synchronized", "extra_numpy_views:synchronized"),
        refuted(
            "numpy_views_unsynchronized",
            "extra_numpy_views:unsynchronized",
            Race("HOST-WAR", "source"),
            Race("HOST-RAW", "result"),
        ),
        proved("item_sync_covers_event", "extra_item_sync:covered"),
        proved("item_sync_incidental", "extra_item_sync:incidental"),
        refuted("item_sync_removed", "extra_item_sync:removed", Race("HOST-RAW")),
        proved("device_sync_alive", "extra_device_sync:alive"),
        proved("device_sync_doubled", "extra_device_sync:doubled", masking=_sets("stream device")),
        proved("device_sync_too_early", "extra_device_sync:too_early"),
        refuted("device_sync_wrong_stream", "extra_device_sync:wrong_stream", Race("HOST-RAW")),
        proved("nested_contexts_joined", "extra_nested_contexts:joined"),
        refuted("nested_contexts_not_joined", "extra_nested_contexts:not_joined", Race("RAW")),
        proved("query_polled", "extra_query_polling:polled"),
        refuted("query_looked_once", "extra_query_polling:looked_once"),
        proved("query_looked_once_then_waited", "extra_query_polling:looked_once_then_waited"),
        proved("both_ways_needed", "extra_both_ways:needed"),
        proved("both_ways_first_dead", "extra_both_ways:first_dead"),
        refuted("both_ways_second_missing", "extra_both_ways:second_missing", Race("RAW")),
        refuted("to_cpu_read_at_once", "extra_to_cpu_non_blocking:read_at_once", Race("HOST-RAW")),
        proved("to_cpu_read_after_sync", "extra_to_cpu_non_blocking:read_after_stream_sync"),
        proved("to_cpu_blocking", "extra_to_cpu_non_blocking:blocking"),
        proved("pageable_download", "extra_pageable:to_pageable"),
        proved("pinned_blocking", "extra_pageable:blocking_pinned"),
        refuted("pageable_other_stream", "extra_pageable:other_stream", Race("HOST-RAW")),
        proved("graph_fork_join", "extra_graph_fork_join:joined"),
        refuted("graph_mutated_in_branch", "extra_graph_fork_join:mutated_in_branch", Race("WAR")),
        proved("graph_fork_join_events", "extra_graph_fork_join:with_events"),
        refuted("graph_static_input_one_way", "extra_graph_static_input:one_way", Race("WAR")),
        proved("graph_static_input_both_ways", "extra_graph_static_input:both_ways"),
        proved("graph_twice", "extra_graph_twice:counted"),
        proved("queue_with_event", "extra_queue_threads:with_event"),
        refuted("queue_without_event", "extra_queue_threads:without_event", Race("RAW")),
        proved("queue_dropped_by_consumer", "extra_queue_threads:dropped_by_consumer"),
        proved(
            "class_sites",
            "extra_class_sites:layers",
            helpers=("Layer",),
            instances={"fork": 3, "join": 3},
        ),
        proved("autograd_side_forward", "extra_autograd_streams:side_forward"),
        proved("autograd_hooks", "extra_autograd_streams:hooks", right="right_hooks"),
        refuted(
            "autograd_hooks_not_joined", "extra_autograd_streams:hooks_not_joined", Race("RAW")
        ),
        proved("views_halves", "extra_inplace_views:halves"),
        refuted("views_overlapping", "extra_inplace_views:overlapping", Race("WAW")),
        refuted("views_reshaped", "extra_inplace_views:reshaped", Race("WAW")),
        proved("columns_interleaved", "extra_strided_columns:interleaved"),
        refuted("columns_crossing", "extra_strided_columns:crossing", Race("WAW")),
        proved("index_put_other_rows", "extra_index_put:other_rows", benign=True),
        refuted("index_put_same_row", "extra_index_put:same_row", Race("RAW")),
        proved("foreach_optimizer_joined", "extra_foreach_optimizer:joined"),
        refuted("foreach_optimizer_one_way", "extra_foreach_optimizer:one_way", Race("WAR")),
        proved("stream_pool_wrapped", "extra_stream_pool:wrapped"),
        refuted("stream_pool_not_wrapped", "extra_stream_pool:not_wrapped", Race("RAW")),
        proved("transitive_direct_and_chain", "extra_transitive:direct_and_chain"),
        proved("transitive_chain_only", "extra_transitive:chain_only"),
        refuted("placement_record_too_early", "extra_placement:record_too_early", Race("RAW")),
        refuted("placement_wait_too_early", "extra_placement:wait_too_early", Race("RAW")),
        proved("placement_in_place", "extra_placement:in_place"),
        proved("stop_token_synchronized", "extra_stop_token:synchronized"),
        refuted("stop_token_unsynchronized", "extra_stop_token:unsynchronized", Race("HOST-RAW")),
        proved("host_round_trip_synchronized", "extra_host_round_trip:synchronized"),
        refuted(
            "host_round_trip_too_early", "extra_host_round_trip:host_too_early", Race("HOST-RAW")
        ),
        proved("data_loader_pinned", "extra_data_loader:pinned"),
        proved("random_two_streams", "extra_random_numbers:two_streams", right="", reference=None),
        proved("parameter_offload_recorded", "extra_parameter_offload:recorded"),
        refuted("parameter_offload_unrecorded", "extra_parameter_offload:unrecorded", Race("UAF")),
        proved("timing_events", "extra_timing_events:measured"),
        proved("rate_limiter", "extra_rate_limiter:limited"),
        refuted("rate_limiter_freed_too_early", "extra_rate_limiter:freed_too_early", Race("UAF")),
        proved("generic_api_event", "extra_generic_api:with_event"),
        refuted("generic_api_no_event", "extra_generic_api:without_event", Race("RAW")),
        proved(
            "generic_api_host_event", "extra_generic_api:event_of_no_module", right="right_host"
        ),
        proved("accelerator_sync", "extra_generic_api:accelerator_sync", right="right_host"),
        proved("thread_pool_with_event", "extra_thread_pool:with_event"),
        refuted("thread_pool_future_only", "extra_thread_pool:future_only", Race("RAW")),
        proved("asyncio_polled", "extra_asyncio:polled"),
        refuted("asyncio_yielded_once", "extra_asyncio:yielded_once", Race("HOST-RAW")),
        proved("condition_with_events", "extra_condition:with_events"),
        refuted("condition_with_turns_only", "extra_condition:with_turns_only", Race("RAW")),
        proved("save_on_cpu", "extra_save_on_cpu:pinned"),
        proved("stream_query_polled", "extra_stream_query:polled"),
        refuted("stream_query_wrong_stream", "extra_stream_query:wrong_stream", Race("HOST-RAW")),
        proved("mem_pool_recorded", "extra_mem_pool:recorded"),
        refuted("mem_pool_unrecorded", "extra_mem_pool:unrecorded", Race("UAF")),
        proved("mem_pool_other", "extra_mem_pool:other_pool"),
        proved("pinned_temporaries", "extra_pinned_temporaries:uploads"),
        proved("pinned_temporaries_two_streams", "extra_pinned_temporaries:two_streams"),
        proved("pinned_ring", "extra_pinned_ring:slots"),
        refuted("pinned_ring_one_step_late", "extra_pinned_ring:one_step_late", Race("HOST-WAR")),
        proved("benign_dead_row", "extra_benign_race:dead_row", benign=True),
        proved("benign_equal_values", "extra_benign_race:equal_values"),
        refuted("overlap_two_adds", "extra_overlap:two_adds", Race("RAW")),
        proved("overlap_two_adds_in_order", "extra_overlap:two_adds_in_order"),
        refuted("overlap_torn_copy", "extra_overlap:torn_copy", Race("RAW")),
        proved("overlap_copy_in_order", "extra_overlap:copy_in_order", right="right_copy"),
        proved(
            "overlap_one_of_two_flags",
            "extra_overlap:one_of_two_flags",
            right="right_flags",
            masking=_sets("one two", "one to-two", "to-one two", "to-one to-two"),
        ),
        proved(
            "overlap_four_ways",
            "extra_overlap:four_ways",
            masking=_sets("stream device join again"),
        ),
        proved("decode_graph_both_ways", "extra_decode_graph:both_ways"),
        refuted("decode_graph_one_way", "extra_decode_graph:one_way", Race("WAR")),
        proved("late_event_waits", "extra_late_sync:by_event", args=(False,)),
        refuted(
            "late_event_waits_late", "extra_late_sync:by_event", Race("HOST-RAW"),
            args=(True,), edges={"early": "absent"},
        ),
        proved("late_timed_wait_waits", "extra_late_sync:by_timed_wait", args=(False,)),
        refuted(
            "late_timed_wait_waits_late", "extra_late_sync:by_timed_wait", Race("HOST-RAW"),
            args=(True,), edges={"early": "absent"},
        ),
        proved("late_condition_waits", "extra_late_sync:by_condition", args=(False,)),
        refuted(
            "late_condition_waits_late", "extra_late_sync:by_condition", Race("HOST-RAW"),
            args=(True,), edges={"early": "absent"},
        ),
        proved("late_barrier_waits", "extra_late_sync:by_barrier", args=(False,)),
        refuted(
            "late_barrier_waits_late", "extra_late_sync:by_barrier", Race("HOST-RAW"),
            args=(True,), edges={"early": "absent"},
        ),
        proved("late_future_waits", "extra_late_sync:by_future", args=(False,)),
        refuted(
            "late_future_waits_late", "extra_late_sync:by_future", Race("HOST-RAW"),
            args=(True,), edges={},
        ),
        proved("late_item_waits", "extra_late_sync:by_item", args=(False,)),
        refuted(
            "late_item_waits_late", "extra_late_sync:by_item", Race("HOST-RAW"),
            args=(True,), edges={"early": "absent"},
        ),
        proved("late_blocking_copy_waits", "extra_late_sync:by_blocking_copy", args=(False,)),
        refuted(
            "late_blocking_copy_waits_late", "extra_late_sync:by_blocking_copy", Race("HOST-RAW"),
            args=(True,), edges={"early": "absent"},
        ),
        proved(
            "late_two_workers_waits", "extra_late_sync:two_workers", args=(False,),
            right="right_twice",
        ),
        refuted(
            "late_two_workers_waits_late", "extra_late_sync:two_workers", Race("HOST-RAW"),
            args=(True,), edges={"early": "absent"},
        ),
        proved("late_upload_waits", "extra_late_sync:upload", args=(False,), right="right_upload"),
        refuted(
            "late_upload_waits_late", "extra_late_sync:upload", Race("HOST-WAR"),
            args=(True,), edges={"early": "absent"},
        ),
        refuted("late_sleep", "extra_late_sync:by_sleep", Race("HOST-RAW")),
        proved("late_flag", "extra_late_sync:by_flag"),
        refuted("late_query", "extra_late_sync:by_query", Race("HOST-RAW")),
        proved(
            "late_queue", "extra_late_sync:queue_of_events", args=(True,), right="right_items",
        ),
        refuted(
            "late_queue_no_wait", "extra_late_sync:queue_of_events", Race("HOST-RAW"),
            args=(False,),
            # The producer never blocks: in the recorded order both items are in the queue before
            # main gets the first, so its wait for the first copy orders that for main.
            edges={"record": "redundant", "wait": "absent", "late": "any"},
        ),
        refuted("late_nobody_told", "extra_late_sync:nobody_told", Race("HOST-WAR/HOST-RAW")),
        refuted("shared_stream", "extra_shared_stream:unordered", Race("WAW")),
        proved("shared_stream_any", "extra_shared_stream:in_any_order"),
        proved("shared_stream_lock", "extra_shared_stream:who_has_the_lock"),
        proved("shared_stream_flag", "extra_shared_stream:by_flag"),
        proved("shared_stream_time", "extra_shared_stream:by_time"),
        proved("shared_stream_ordered", "extra_shared_stream:ordered"),
        proved("shared_stream_disjoint", "extra_shared_stream:disjoint", right="right_rows"),
        proved("shared_stream_own", "extra_shared_stream:each_its_own"),
        refuted("shared_stream_wait", "extra_shared_stream:wait_may_be_early", Race("RAW")),
        proved("shared_stream_wait_after", "extra_shared_stream:wait_after_record"),
        refuted("shared_stream_put", "extra_shared_stream:put_before_record", Race("RAW")),
        refuted("shared_stream_set", "extra_shared_stream:set_before_record", Race("HOST-RAW")),
        refuted(
            "shared_stream_sync", "extra_shared_stream:device_sync_by_another", Race("HOST-RAW")
        ),
    )


EXPECTATIONS = (*_records(), *_extras())
