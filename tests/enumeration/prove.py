"""redgreen's verdicts on a program, and every outcome that it saw.

Runs are made in this process: the programs keep no state outside of the virtual GPU, and a fork for
each of the many runs would be most of the time. `forked` proves as users do; both must agree.
"""

from __future__ import annotations

import linecache
import struct
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import redgreen
from redgreen import frame
from redgreen.faults import Fault
from redgreen.isolation import virtual_gpu
from redgreen.leaves import flatten
from redgreen.proving import prove_runner
from redgreen.run import Leaf, Outcome, Run
from redgreen.schedule import Schedule
from redgreen.verdict import Proof

from .enumerate import Outcome as Expected
from .program import Program
from .render import WIDTH, Source, render

BUDGET = 256


@dataclass(frozen=True, slots=True)
class Seen:
    """The outcome of one run."""

    schedule: Schedule
    dropped: frozenset[int]  # sites
    outcome: Expected


@dataclass(slots=True)
class Result:
    proof: Proof
    source: Source
    seen: list[Seen]

    def edges(self) -> dict[int, str]:
        return {self.source.lines[edge.line]: edge.verdict for edge in self.proof.edges}

    def masks(self) -> set[frozenset[int]]:
        sites = {edge.id: self.source.lines[edge.line] for edge in self.proof.edges}
        return {frozenset(sites[name] for name in (edge.id, *others))
                for edge in self.proof.edges for others in edge.masked_with}

    @property
    def complete(self) -> bool:
        """Were all schedules of the program as written looked at, as far as redgreen knows?"""
        return not any(d.kind == "inconclusive" for d in self.proof.diagnostics)


def prove(program: Program, name: str, allocator: str = "native") -> Result:
    source, function = load(program, name)
    runner = _InProcess(function, source, program, allocator)
    proof = prove_runner(runner, subject=name, device="virtual", make_token=_token, budget=BUDGET)
    return Result(proof, source, runner.seen)


def forked(program: Program, name: str) -> Proof:
    return redgreen.prove(load(program, name)[1], budget=BUDGET)


def load(program: Program, name: str) -> tuple[Source, Callable[[], object]]:
    """The program as a function whose source lines can be looked up."""
    source = render(program)
    file = f"/enumeration/{name}.py"
    linecache.cache[file] = (len(source.text), None, source.text.splitlines(True), file)
    names: dict[str, Any] = {}
    exec(compile(source.text, file, "exec"), names)
    return source, names["program"]


def _token(schedule: Schedule, faults: frozenset[Fault]) -> str:
    return f"{schedule} without {sorted(fault.edge.site.line for fault in faults)}"


@dataclass(slots=True)
class _InProcess:
    """A runner."""

    function: Callable[[], object]
    source: Source
    program: Program
    allocator: str
    seen: list[Seen] = field(default_factory=list)

    def run(self, schedule: Schedule, faults: frozenset[Fault] = frozenset(),
            step_limit: int | None = None) -> Run:
        gpu = virtual_gpu(schedule, faults, allocator=self.allocator, step_limit=step_limit)
        with gpu:
            outcome = frame.under(self._call, "/enumeration/caller.py", 1, "caller")
            record = gpu.finish()
        if all(fault.action == "drop" for fault in faults):  # others make another program
            dropped = frozenset(self.source.lines[fault.edge.site.line] for fault in faults)
            self.seen.append(Seen(schedule, dropped, values(self.program, outcome.leaves)))
        return Run(schedule, faults, outcome, record.trace, dict(record.hits),
                   tuple(record.broken), dict(record.changed))

    def _call(self) -> Outcome:
        return Outcome("returned", flatten(self.function()))


def values(program: Program, leaves: tuple[Leaf, ...]) -> Expected:
    """Numbers by output, one for each piece."""
    found: list[tuple[int, ...]] = []
    row: list[float] = []
    for leaf in (*leaves, Leaf("", "list of 0", b"")):
        if leaf.form in ("int", "float"):
            whole = leaf.form == "int"
            row.append(int(leaf.data) if whole else struct.unpack("<d", leaf.data)[0])
            continue
        if row:
            found.append(_pieces(program, row))
            row = []
        if leaf.form == "bool":
            found.append((int(leaf.data == b"True"),))
        elif leaf.form.startswith("tensor"):
            letter = "q" if program.dtype == "int64" else "f"
            count = len(leaf.data) // struct.calcsize(letter)
            found.append(_pieces(program, list(struct.unpack(f"<{count}{letter}", leaf.data))))
    return tuple(found)


def _pieces(program: Program, row: list[float]) -> tuple[int, ...]:
    width = WIDTH[program.dtype]
    pieces = [row[i : i + width] for i in range(0, len(row), width)]
    assert all(len(set(piece)) == 1 for piece in pieces), f"a piece is cut: {row}"
    return tuple(int(v) for v, *_ in pieces)
