"""Runs until a load-bearing edge shows: directed as in a proof, at random, and by priorities.

    python -m benchmarks.efficiency [PROGRAMS]

For each edge of the corpus that is load-bearing, the edge is taken out, and runs are counted until
an output is new. Directed: what `redgreen prove` does. Random and priorities (PCT with three
changes) draw schedules, up to a limit.
"""

from __future__ import annotations

import statistics
import sys
from collections.abc import Callable, Iterator

from redgreen.explore import Search
from redgreen.faults import Fault
from redgreen.green import judge_program
from redgreen.isolation import ForkedRunner
from redgreen.judge import Base, judge
from redgreen.recording import record
from redgreen.schedule import Schedule
from redgreen.subject import Call
from redgreen.trace import EdgeSite
from tests.corpus.expect import EXPECTATIONS

LIMIT = 100
Draw = Callable[[int, int], Schedule]  # number of the draw, steps of the program


def at_random(draw: int, steps: int) -> Schedule:
    return Schedule("random", seed=draw)


def by_priority(draw: int, steps: int) -> Schedule:
    changes = tuple(sorted({(draw * 7919 + i * 104729) % steps for i in range(3)}))
    return Schedule("pct", seed=draw, late=changes)


def edges(base: Base) -> Iterator[tuple[EdgeSite, int]]:
    """The load-bearing ones, with the number of directed runs."""
    for edge in base.serial.trace.edges:
        if edge.kind != "copy":
            found = judge(base, frozenset((edge,)))
            if found.changed and found.witness is not None:
                yield edge, found.explored


def drawn(base: Base, edge: EdgeSite, draw: Draw) -> int:
    """Runs until an output is new; LIMIT + 1 if none was."""
    faults, steps = frozenset((Fault("drop", edge),)), len(base.serial.trace.steps)
    for number in range(1, LIMIT + 1):
        run = base.runner.run(draw(number, steps), faults, base.step_limit)
        if base.is_new(run.outcome):
            return number
    return LIMIT + 1


def main() -> None:
    programs = [e for e in EXPECTATIONS if e.green == "proved"]
    programs = programs[: int(sys.argv[1])] if len(sys.argv) > 1 else programs
    counts: dict[str, list[int]] = {"directed": [], "random": [], "priorities": []}
    for done, expect in enumerate(programs):
        print(f"\r{done}/{len(programs)} programs", end="", file=sys.stderr)
        runner = ForkedRunner(Call(expect.function, expect.args))
        serial = record(runner).run
        limit = 20 * len(serial.trace.steps) + 1000
        base = Base(runner, serial, Search(runner, frozenset(), 256, limit), 256, limit)
        judge_program(base, lambda schedule, faults: "")
        for edge, directed in edges(base):
            counts["directed"].append(directed)
            counts["random"].append(drawn(base, edge, at_random))
            counts["priorities"].append(drawn(base, edge, by_priority))
    print(f"\r{len(counts['directed'])} load-bearing edges of {len(programs)} programs")
    for name, runs in counts.items():
        missed = sum(number > LIMIT for number in runs)
        worst = f"more than {LIMIT}" if missed else str(max(runs))
        print(
            f"{name:11} median {statistics.median(runs):g}, mean {statistics.mean(runs):.1f},"
            f" worst {worst}, not found {missed}"
        )


if __name__ == "__main__":
    main()
