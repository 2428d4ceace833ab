"""Small changes of the program other than taking a sync call out: is one noticed?

early     a record marks one step less: it is made before the latest access of its stream
late      a wait comes one step too late: after the next access of whoever waits
stream    a record, wait or record_stream is made on the wrong stream: the one that is current at
          the call, or where that is the one that was named, the default stream
collapse  a declared ring of buffers has one slot: its allocations get the storage of the first
free      a storage dies with the enqueue of its last use, although something still refers to it
unpin     a pinned allocation is pageable: its copies become synchronous

Each applies at all instances of one site. What a moved call does to the order follows from the
trace; whether another order is legal, and what it does, is seen in the mutated program's own runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from .explore import Abandoned, Search
from .faults import Action, Fault, allocation_sites
from .hostorder import unfixed
from .judge import Base, Judgement, Lost, ending, settle
from .lifetimes import latent_frees
from .moves import Move, early, late, redirected
from .order import questions
from .races import Analysis, Conflict, all_races, analyse
from .run import Run
from .schedule import SERIAL
from .trace import Allocation, EdgeSite, Trace

OPERATORS: tuple[Action, ...] = ("early", "late", "stream", "collapse", "free", "unpin")
_KINDS: dict[str, tuple[str, ...]] = {
    "early": ("record", "wait_stream"),
    "late": ("wait_event", "wait_stream", "event.synchronize", "stream.synchronize",
             "torch.cuda.synchronize"),
    "stream": ("record", "wait_event", "wait_stream", "record_stream"),
}  # fmt: skip
_MOVES: dict[str, Move] = {"early": early, "late": late, "stream": redirected}


@dataclass(frozen=True, slots=True)
class Ring:
    """Where the buffers of a ring are allocated: a line of a file, given by the end of its path."""

    file: str
    line: int

    def matches(self, edge: EdgeSite) -> bool:
        wanted = PurePath(self.file).parts
        return (self.line == edge.site.line
                and PurePath(edge.site.file).parts[-len(wanted):] == wanted)


def candidates(
    traces: Sequence[Trace], wanted: Sequence[Action], rings: Sequence[Ring]
) -> Iterator[Fault]:
    """The mutants of a program."""
    edges = dict.fromkeys(edge for trace in traces for edge in trace.edges)
    blocks = dict.fromkeys(site for trace in traces for site in allocation_sites(trace))
    for operator in wanted:
        if operator in _KINDS:
            yield from (Fault(operator, e) for e in edges if e.kind in _KINDS[operator])
        elif operator == "collapse":
            yield from (Fault(operator, b) for b in blocks if any(r.matches(b) for r in rings))
        elif operator == "free":
            yield from _shared_blocks(traces[0], blocks)
        else:
            pinned = {traces[0].sites[a.site] for a in _allocations(traces[0], pinned=True)}
            yield from (Fault(operator, b) for b in blocks if b.site in pinned)


def _allocations(trace: Trace, pinned: bool) -> list[Allocation]:
    """Without the places where blocking copies land, which are in no memory of the program."""
    return [a for a in trace.allocations if a.pinned is pinned and a.memory >= 0]


def _shared_blocks(trace: Trace, blocks: Iterable[EdgeSite]) -> Iterator[Fault]:
    """Device blocks that a stream uses which did not allocate them: to the allocating stream's
    next allocation, an early death of any other is no news."""
    uses = dict.fromkeys(range(len(trace.allocations)), 0)
    shared = set()
    for step in trace.steps:
        for lifetime in {access.lifetime for access in step.accesses}:
            uses[lifetime] += 1
            if step.agent != trace.allocations[lifetime].stream:
                shared.add(lifetime)
    for block in blocks:
        mine = [a for a in trace.allocations if trace.sites[a.site] == block.site]
        if any(a.id in shared and not a.pinned for a in mine):
            yield Fault("free", block, uses=tuple(0 if a.pinned else uses[a.id] for a in mine))


def judge_mutant(base: Base, fault: Fault) -> Judgement:
    """Does the change make an outcome that the program does not have?"""
    faults = frozenset((fault,))
    search = Search(
        base.runner, faults, base.budget, base.step_limit, hosts=base.search.hosts)
    found = Judgement(False, faults=faults)
    try:
        start = search.run(SERIAL)
    except Abandoned as abandoned:
        found.changed, found.reason, found.explored = None, str(abandoned), search.spent
        return found
    assert start is not None  # the budget is at least one run
    if not search.hits or not start.changed.get(fault, 0):
        found.explored, found.hits = search.spent, 0
        found.reason = _nothing(fault) if search.hits else _unreached(fault)
        return found
    found.changed = None  # a bound that is hit from here on leaves it open
    found.lost = [*_foretold(base, fault), *_seen(base, start, fault)]
    if any(part.calls for part in found.lost) and not search.hosts:
        search.count_hosts(True)
    found = settle(base, search, found, start)
    if found.changed and found.witness is None:  # fewer outcomes than the program has
        found.changed, found.reason = False, f"no outcome is new; {found.reason}"
    elif found.changed:
        run = next((r for r in search.all_outcomes().values() if r.schedule == found.witness), None)
        found.reason = found.reason or ("" if run is None else ending(run.outcome))
    elif found.changed is False:
        found.reason = _survived(fault, start, found)
    return found


def _foretold(base: Base, fault: Fault) -> Iterator[Lost]:
    """What the order of the moved call leaves undecided, in every variant."""
    move = _MOVES.get(fault.action)
    if move is None or fault.edge.kind == "record_stream":
        return
    for key, run in base.variants():
        before = base.analyses[key]
        moved = move(run.trace, fault.edge)
        known = _named(run.trace, before)
        after = all_races(moved)
        conflicts = _new(moved, after, known)
        if conflicts:
            yield Lost(run, moved, conflicts, races=after.races)


def _seen(base: Base, start: Run, fault: Fault) -> Iterator[Lost]:
    """What is undecided in the mutated program's own run, and was not, or asks something else. What
    is not foretold has to be looked for under other answers to its choices as well."""
    trace, serial = start.trace, base.serial.trace
    before, after = analyse(serial), analyse(trace)
    if after.races:
        before, after = all_races(serial), all_races(trace)
    conflicts = _new(trace, after, _named(serial, before))
    other = after.truncated or _asked(trace) != _asked(serial)
    other = other or (bool(before.races) and _named(trace, after) != _named(serial, before))
    other = other or (fault.action not in _MOVES and len(base.variants()) > 1)
    calls = {_name(trace, c) for c in unfixed(trace, after)} - {
        _name(serial, c) for c in unfixed(serial, before)}
    if conflicts or other or calls or start.outcome != base.serial.outcome:
        yield Lost(start, trace, conflicts, other, bool(calls), after.races)


_Names = set[tuple[str, str, str]]


def _name(trace: Trace, conflict: Conflict) -> tuple[str, str, str]:
    return trace.steps[conflict.first].label, trace.steps[conflict.second].label, conflict.hazard


def _named(trace: Trace, found: Analysis) -> _Names:
    return {_name(trace, conflict) for conflict in found.races}


def _new(trace: Trace, found: Analysis, known: _Names) -> list[Conflict]:
    return [conflict for conflict in found.races if _name(trace, conflict) not in known]


def _asked(trace: Trace) -> list[tuple[str, tuple[str, ...], bool]]:
    labels = [step.label for step in trace.steps]
    return [(labels[choice], tuple(labels[step] for step in asked), done)
            for choice, asked, done in questions(trace)]


def _unreached(fault: Fault) -> str:
    if fault.action in ("free", "collapse"):
        return "its memory is of a private pool, which is left alone"
    return "the fault was not reached"


def _nothing(fault: Fault) -> str:
    """Why a mutant is the program itself. That is no pass: nothing was tried."""
    return "it changes nothing: " + {
        "early": "the stream was given nothing before the record",
        "late": "the stream is given nothing after the wait",
        "stream": "the named stream is current, and the default one",
        "collapse": "no two of its allocations of one size are alive at a time",
        "free": "nothing refers to the storage after its last use, or a graph has it",
    }.get(fault.action, "the program is the same")


def _survived(fault: Fault, start: Run, found: Judgement) -> str:
    lost = any(part.conflicts or part.calls for part in found.lost)
    why = found.reason if lost else "every conflict has its order all the same"
    if fault.action != "free":
        return why
    trace = start.trace
    latent = {trace.allocations[trace.steps[free.free].allocation].site
              for free in latent_frees(trace)}
    if any(trace.sites[site] == fault.edge.site for site in latent):
        return f"{why}; but nobody allocates where the block was, and whoever did would race"
    return why
