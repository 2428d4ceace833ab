"""What taking edges out does: the base to compare with, and the judgement of a set of edges."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from itertools import chain

from .classes import Variant
from .describe import conflict_name
from .directed import called, demonstrations, holds, spread
from .explore import MAX_VARIANTS, Abandoned, Search
from .faults import Action, Fault
from .hostorder import unfixed
from .lifetimes import without_reuse
from .order import questions
from .races import Analysis, Conflict, all_races, analyse
from .run import Outcome, Run, Runner
from .schedule import LAZY, SERIAL, Schedule
from .tears import long_steps, tears
from .trace import EdgeSite, Trace


@dataclass(slots=True)
class Base:
    """The program as written: its outcomes, and a trace for each way its choices went."""

    runner: Runner
    serial: Run
    search: Search
    budget: int
    step_limit: int
    analyses: dict[Variant, Analysis] = field(default_factory=dict)

    @property
    def racy(self) -> bool:
        return any(found.races for found in self.analyses.values())

    @property
    def several(self) -> bool:
        """Is the program refuted as written?"""
        return len(self.search.all_outcomes()) > 1

    def variants(self) -> list[tuple[Variant, Run]]:
        return list(self.search.variants.items())

    def analyse(self) -> None:
        """Look at the races of each variant."""
        for key, run in self.variants():
            if key not in self.analyses:
                self.analyses[key] = all_races(run.trace)

    def is_new(self, outcome: Outcome) -> bool:
        return outcome not in self.search.outcomes and outcome not in self.search.torn


@dataclass(slots=True)
class Lost:
    """The conflicts of one variant that are decided otherwise without the edges."""

    run: Run  # of the program as written, which had this trace
    trace: Trace  # its own, or what is left of it when freed blocks are never found done
    conflicts: list[Conflict]
    other: bool = False  # a race becomes ordered, or a choice asks about something else
    calls: bool = False  # the order of host threads' calls decides more conflicts
    races: list[Conflict] = field(default_factory=list)  # those there are anyhow


@dataclass(slots=True)
class Judgement:
    """Does taking the edges out change the set of outcomes? None: a bound was hit."""

    changed: bool | None
    reason: str = ""
    explored: int = 0
    hits: int = 0
    lost: list[Lost] = field(default_factory=list)
    witness: Schedule | None = None
    faults: frozenset[Fault] = frozenset()


def lost_names(found: Judgement) -> tuple[str, ...]:
    """One conflict of each kind that loses its order."""
    return tuple(dict.fromkeys(
        conflict_name(part.trace, conflict)
        for part in found.lost for conflict in spread(part.trace, part.conflicts, 1)))


def indices(trace: Trace, edges: Iterable[EdgeSite]) -> frozenset[int]:
    wanted = set(edges)
    return frozenset(i for i, edge in enumerate(trace.edges) if edge in wanted)


def lost_orders(base: Base, edges: frozenset[EdgeSite]) -> list[Lost]:
    """What the order says about a fault, before anything is run."""
    result = []
    for key, run in base.variants():
        gone = indices(run.trace, edges)
        if gone:
            result.append(_lost(run, run.trace, gone, base.analyses[key]))
            bare = without_reuse(run.trace)
            if bare is not None:
                found = analyse(bare, every=bool(base.analyses[key].races))
                part = _lost(run, bare, gone, found)
                part.conflicts = [c for c in part.conflicts if c.hazard != "UAF"]
                part.calls = False
                result.append(part)
    return [part for part in result if part.conflicts or part.other or part.calls]


def _lost(run: Run, trace: Trace, gone: frozenset[int], before: Analysis) -> Lost:
    after = analyse(trace, gone, every=bool(before.races))
    known, left = _pairs(before.races), _pairs(after.races)
    conflicts = [c for c in after.races if _pairs([c]) - known]
    other = bool(known - left) or after.truncated or questions(trace) != questions(trace, gone)
    calls = bool(_pairs(unfixed(trace, after, gone)) - _pairs(unfixed(trace, before)))
    return Lost(run, trace, conflicts, other, calls, list(before.races))


def _pairs(conflicts: Iterable[Conflict]) -> set[tuple[int, int, int]]:
    return {(c.first, c.second, c.memory) for c in conflicts}


def judge(base: Base, edges: frozenset[EdgeSite], action: Action = "drop") -> Judgement:
    """Take the edges out and compare: by the order alone where it suffices, else by runs."""
    faults = frozenset(Fault(action, edge) for edge in edges)
    lost = lost_orders(base, edges)
    hosts = base.search.hosts or any(part.calls for part in lost)
    search = Search(base.runner, faults, base.budget, base.step_limit, hosts=hosts)
    return settle(base, search, Judgement(None, lost=lost, faults=faults))


def judge_edge(base: Base, edge: EdgeSite) -> Judgement:
    """One edge. A dependency inside of a graph is cut first: which bytes go wrong says more than
    that CUDA refuses the capture without the call, which counts if no byte does."""
    edges = frozenset((edge,))
    if not any(step.launch and gone.intersection(step.edges) for _, run in base.variants()
               for gone in [indices(run.trace, edges)] for step in run.trace.steps):
        return judge(base, edges)
    cut = judge(base, edges, "cut")
    if cut.changed and cut.hits:
        return cut
    dropped = judge(base, edges)
    return dropped if dropped.changed or cut.changed is not None else cut


def settle(base: Base, search: Search, verdict: Judgement, start: Run | None = None) -> Judgement:
    """Finish a judgement whose lost conflicts are known; ``start`` is the serial run if made."""
    try:
        _decide(base, search, verdict, start)
    except Abandoned as abandoned:
        verdict.changed, verdict.reason = None, str(abandoned)
    verdict.explored, verdict.hits = search.spent, search.hits
    return verdict


def _decide(base: Base, search: Search, verdict: Judgement, start: Run | None) -> None:
    if not verdict.lost:
        _confirm(base, search, verdict)
        return
    if not base.search.complete:
        verdict.reason = f"the base outcomes are not all known: {base.search.gap}"
        return
    start = start or search.run(SERIAL)
    if start is None:
        verdict.reason = search.gap
        return
    schedules = chain(_directed(verdict.lost), demonstrations(start.trace))
    run = start if base.is_new(start.outcome) else search.any(schedules, base.is_new)
    if run is None:
        run = search.exhaust(start, base.is_new)
    if run is None and search.complete:
        run = search.any(_torn(verdict.lost), base.is_new)
        if run is not None and base.several:
            verdict.reason = ("only overlapping kernels give a new outcome, and of the program as "
                              "written not every overlap was run")
            return
    if run is not None:
        verdict.changed, verdict.witness = True, run.schedule
        return
    if search.gap:
        verdict.reason = search.gap
        return
    vanished = set(base.search.outcomes) - set(search.outcomes)
    verdict.changed = bool(vanished)
    if vanished:
        verdict.reason = f"{len(vanished)} of the base outcomes can no longer occur"
    elif base.several:
        verdict.reason = "order is lost, but no outcome is new"
    else:
        verdict.reason = "order is lost, but every schedule gives the same bytes"


def _confirm(base: Base, search: Search, verdict: Judgement) -> None:
    """The order says that nothing changes; one run with everything late must agree."""
    if base.search.too_many_variants:
        verdict.reason = f"choices have more than {MAX_VARIANTS} lists of answers"
        return
    verdict.changed = False
    run = search.run(LAZY)
    if run is None or not base.is_new(run.outcome):
        return
    if not base.search.complete:
        verdict.changed, verdict.reason = None, base.search.gap
        return
    verdict.changed, verdict.witness = True, run.schedule
    verdict.reason = ending(run.outcome) or "the recorded order does not explain the difference"


def ending(outcome: Outcome) -> str:
    """How a run ended that returned nothing."""
    if outcome.status == "returned":
        return ""
    said = outcome.leaves[0].data.decode("utf-8", "replace") if outcome.leaves else ""
    return f"{outcome.status}: {said}"


def _torn(lost: list[Lost]) -> Iterable[Schedule]:
    for part in lost:
        chosen = spread(part.trace, part.conflicts)
        yield from called(part.run, tears(part.trace, chosen))
        every = part.conflicts + part.races
        yield from called(part.run, (s for _, s in long_steps(part.trace, every, chosen)))


def _directed(lost: list[Lost]) -> Iterable[Schedule]:
    for part in lost:
        yield from called(part.run, holds(part.trace, spread(part.trace, part.conflicts)))
