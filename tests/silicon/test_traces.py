"""The recorder's traces are those of the virtual GPU, step for step: tokens cross devices."""

from __future__ import annotations

import pytest

from redgreen.isolation import ForkedRunner
from redgreen.schedule import SERIAL
from redgreen.subject import parse
from redgreen.trace import Trace
from tests.silicon import source
from tests.silicon.fake import run


def shape(trace: Trace, name: str) -> list[str]:
    """What must be the same: labels, agents, edges, how much is accessed and how.

    Of the program alone: who reads its output here is not a proof.
    """
    own = (f"{name}:", f"_{name.removesuffix('_fixed')}:")
    lines = []
    for step in trace.steps:
        if not step.label.startswith(own):
            continue
        edges = " ".join(
            f"{trace.edges[e].kind}@{trace.edges[e].site.line}" for e in step.edges)
        accesses = " ".join(
            f"{'r' * a.reads}{'w' * a.writes}{a.extent.stop - a.extent.start}"
            for a in sorted(step.accesses, key=lambda a: (a.reads, a.writes)))
        lines.append(f"{step.kind.name} {trace.agents[step.agent].name} {step.label} "
                     f"{trace.sites[step.site].line} [{edges}] [{accesses}] {step.launch}")
    return lines


@pytest.mark.parametrize("name", source.ALL)
def test_trace_is_the_virtual_one(name: str) -> None:
    virtual = ForkedRunner(parse(f"{source.PROGRAMS}:{name}")).run(SERIAL)
    assert virtual.outcome.status == "returned", virtual.outcome.detail
    record = run(source.for_fake(name))
    # What torch's own C++ does to its generator is no step: labels are counted.
    assert not [s.label for s in record.trace.steps if s.label.startswith(("capture_", "replay:"))]
    mine, theirs = shape(record.trace, name), shape(virtual.trace, name)
    assert mine == theirs[: len(mine)] and len(mine) > 5
    assert all("copy_" in line or ":free#" in line for line in theirs[len(mine) :])  # the output
