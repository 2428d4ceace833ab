"""Hugging Face transformers' asynchronous continuous batching, unmodified, on the virtual GPU."""

from __future__ import annotations

import pytest

from redgreen.schedule import LAZY, SERIAL, Schedule
from tests.child import in_child

SCHEDULES = {"serial": SERIAL, "lazy": LAZY}
# What carries the pipeline: its loads, its computation, its results.
CARRYING = (
    ("wait_event", "h2d_over"), ("wait_event", "compute_over"), ("event.synchronize", "d2h_over"),
)  # fmt: skip


def _tokens(name: str, schedule: Schedule) -> list[list[int]]:
    from examples import continuous_batching as client
    from redgreen.virtual import VirtualGPU

    with VirtualGPU(schedule) as gpu:
        tokens: list[list[int]] = getattr(client, name)()
        trace = gpu.finish().trace
    assert not trace.refusals and len(trace.steps) > 1000
    return tokens


def _plain() -> list[list[int]]:
    from examples import continuous_batching as client

    return client.plain()


@pytest.mark.parametrize("name", ["eager_joined", "graphs_joined"])
def test_tokens_are_those_of_plain_generate(name: str) -> None:
    right = in_child(_plain)
    assert [len(each) for each in right] == [8, 8, 8]
    for schedule in SCHEDULES.values():
        assert in_child(lambda schedule=schedule: _tokens(name, schedule)) == right


@pytest.mark.slow
@pytest.mark.parametrize("name", ["eager_joined", "graphs_joined"])
def test_each_sync_call_has_a_verdict(name: str) -> None:
    """What README shows."""
    import redgreen
    from examples import continuous_batching as client

    proof = redgreen.prove(getattr(client, name), reference=client.plain).to_dict()
    green = proof["green"]
    assert (green["verdict"], green["reference"], green["races"]) == ("proved", "identical", [])
    verdicts = {(e["kind"], e["code"]): e for e in proof["edges"]}
    assert {e["verdict"] for e in proof["edges"]} == {"load-bearing", "redundant"}
    for kind, event in CARRYING:
        (edge,) = (e for (k, code), e in verdicts.items() if k == kind and event in code)
        assert edge["verdict"] == "load-bearing" and edge["witness"]
    assert sum(e["verdict"] == "load-bearing" for e in proof["edges"]) == 7


@pytest.mark.slow
@pytest.mark.parametrize("name", ["eager", "graphs"])
def test_without_our_join_it_is_refuted(name: str) -> None:
    import redgreen
    from examples import continuous_batching as client

    proof = redgreen.prove(getattr(client, name), reference=client.plain).to_dict()
    assert proof["green"]["verdict"] == "refuted"
    fills = [race for race in proof["green"]["races"] if race["changes_output"]]
    assert fills and all(race["witness"] for race in fills)
    assert any(race["first"]["op"].startswith(("aten.zero_", "aten.fill_")) for race in fills)
