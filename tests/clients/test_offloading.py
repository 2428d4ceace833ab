"""Libraries that offload, unmodified, on the virtual GPU: what docs/clients.md shows."""

from __future__ import annotations

from collections import Counter

import pytest

import redgreen

pytestmark = pytest.mark.slow

def verdicts(client: str, function: str) -> tuple[Counter[str], dict[str, str]]:
    """How often each verdict was given, and the verdict of each line."""
    import importlib

    module = importlib.import_module(f"examples.{client}")
    proof = redgreen.prove(getattr(module, function), reference=module.resident).to_dict()
    green = proof["green"]
    assert (green["verdict"], green["reference"], green["races"]) == ("proved", "identical", [])
    edges = {edge["code"]: edge["verdict"] for edge in proof["edges"]}
    return Counter(edge["verdict"] for edge in proof["edges"]), edges


@pytest.mark.parametrize(
    ("function", "freeing"),
    [
        ("leaf", "self._torch_accelerator_module.current_stream().synchronize()"),
        ("leaf_recorded", "tensor.data.record_stream(default_stream)"),
        ("block", "self._torch_accelerator_module.current_stream().synchronize()"),
    ],
)
def test_group_offloading(function: str, freeing: str) -> None:
    """One call keeps memory from being taken too early, the two others wait for uploads."""
    pytest.importorskip("diffusers")
    tally, edges = verdicts("group_offloading", function)
    assert tally == {"load-bearing": 3}
    assert freeing in edges


def test_activation_offloading() -> None:
    pytest.importorskip("trl")
    tally, edges = verdicts("activation_offloading", "offloaded")
    assert tally == {"load-bearing": 6, "redundant": 3}
    assert edges["self.s0.synchronize()"] == edges["self.s1.synchronize()"] == "redundant"
