"""Analysis of long traces: steps per second and memory per step, over four sizes.

    python -m benchmarks.scale

The trace is that of a pipeline that runs for ever: each turn uploads from a ring of pinned buffers,
computes on a stream of its own and downloads, with events between the streams and one host sync.
"""

from __future__ import annotations

import time
import tracemalloc
from unittest import mock

from redgreen import races
from redgreen.races import analyse
from redgreen.trace import Access, Agent, Allocation, Extent, Kind, Site, Step, Trace

SIZES = (125_000, 250_000, 500_000, 1_000_000)
DEPTH, NBYTES = 4, 4096


def pipeline(length: int, fresh: bool = False) -> Trace:
    """A race-free trace of about ``length`` steps. ``fresh``: each turn has buffers of its own, and
    the host reads the result of one turn before it begins the next."""
    agents = [Agent(0, "host", True), *(Agent(i, f"stream {i}", False) for i in (1, 2, 3))]
    blocks = length if fresh else 4 * DEPTH
    allocations = [Allocation(i, i, 0, NBYTES, i % 4 == 0, 0) for i in range(blocks)]
    trace = Trace(agents=agents, sites=[Site("pipeline.py", 1, "turn")], allocations=allocations)
    whole = Extent(0, NBYTES, NBYTES)

    def add(agent: int, kind: Kind, op: str, key: object = None, **memories: int) -> None:
        accesses = tuple(
            Access(m, m, whole, name == "reads", name == "writes") for name, m in memories.items()
        )
        index = len(trace.steps)
        trace.steps.append(
            Step(index, agent, 0, kind, op, 0, f"{op}#{index}", accesses, key)  # type: ignore[arg-type]
        )

    turn = 0
    while len(trace.steps) < length:
        slot = turn if fresh else turn % DEPTH
        host, device, result, out = (4 * slot + i for i in range(4))
        if turn >= DEPTH and not fresh:
            add(0, Kind.ACQUIRE, "event.synchronize", ("down", slot))
            add(0, Kind.ACCESS, "read", reads=out)
        add(0, Kind.ACCESS, "write", writes=host)
        add(1, Kind.ACCESS, "upload", reads=host, writes=device)
        add(1, Kind.PUBLISH, "record", ("up", slot))
        add(2, Kind.ACQUIRE, "wait", ("up", slot))
        for _ in range(4):
            add(2, Kind.ACCESS, "kernel", reads=device, writes=result)
        add(2, Kind.PUBLISH, "record", ("done", slot))
        add(3, Kind.ACQUIRE, "wait", ("done", slot))
        add(3, Kind.ACCESS, "download", reads=result, writes=out)
        add(3, Kind.PUBLISH, "record", ("down", slot))
        if fresh:
            add(0, Kind.ACQUIRE, "event.synchronize", ("down", slot))
            add(0, Kind.ACCESS, "read", reads=out)
        turn += 1
    return trace


def main() -> None:
    for size in SIZES:
        tracemalloc.start()
        trace = pipeline(size)
        kept = tracemalloc.get_traced_memory()[0]
        tracemalloc.stop()
        begin = time.perf_counter()
        found = analyse(trace)
        seconds = time.perf_counter() - begin
        assert not found.races and found.count > size // 4
        print(
            f"{len(trace.steps):>9,} steps: {len(trace.steps) / seconds:>9,.0f} a second,"
            f" {kept / len(trace.steps):.0f} B each in the trace"
        )
    print("buffers of each turn its own, memory of the analysis:")
    for size in SIZES[:3]:
        trace = pipeline(size, fresh=True)
        print(f"{len(trace.steps):>9,} steps: {_needed(trace, races.FORGET) / 1e6:>6.1f} MB,"
              f" {_needed(trace, len(trace.steps) + 1) / 1e6:>6.1f} MB if nothing is forgotten")


def _needed(trace: Trace, forget: int) -> int:
    """The most that one pass over the trace holds, in bytes."""
    with mock.patch.object(races, "FORGET", forget):
        tracemalloc.start()
        found = analyse(trace)
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    assert not found.races
    return peak


if __name__ == "__main__":
    main()
