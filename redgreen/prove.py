"""From a runner to a proof: record, order, demonstrate, races, edges, masking, diagnostics."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch

from . import verdict
from .describe import conflict_name, edge_ids, memory_name, place
from .diagnostics import at, from_trace, unique
from .edges import covers, cuts, edges_of
from .explore import Abandoned, Search, demonstrations, holds, spread
from .faults import Fault
from .judge import Base, Judgement, indices, judge, lost_orders
from .races import Conflict, analyse
from .recording import Recording, SubjectRaised, record
from .run import Outcome, Run, Runner
from .schedule import LAZY, Schedule
from .trace import EdgeSite, Kind, Trace
from .verdict import Diagnostic, Edge, Evidence, Green, Proof, Race, Spot

__all__ = ["InternalError", "SubjectRaised", "prove_runner"]

BUDGET = 256  # runs for each question
MAX_SETS = 64  # candidate sets of masked edges that are tried
MAX_COVERS = 40  # conflicts that are looked at for what covers an edge

Progress = Callable[[str, int, int], None]  # what, how many done, of how many
MakeToken = Callable[[Schedule, frozenset[Fault]], str]


class InternalError(Exception):
    """redgreen contradicts itself: an output differs although the order allows no difference."""


def prove_runner(
    runner: Runner,
    *,
    subject: str,
    device: str,
    make_token: MakeToken,
    reference: Outcome | None = None,
    budget: int = BUDGET,
    edges_glob: str | None = None,
    progress: Progress = lambda what, done, total: None,
    declared: Sequence[str] = (),
) -> Proof:
    """Everything about one subject. Raises SubjectRaised and InternalError, else never fails."""
    recording = record(runner)
    proving = _Proving(runner, recording, make_token, budget, edges_glob, progress, declared)
    return Proof(subject, device, *proving.parts(reference))


@dataclass(slots=True)
class _Proving:
    """The state of one proof while it grows."""

    runner: Runner
    recording: Recording
    make_token: MakeToken
    budget: int
    edges_glob: str | None
    progress: Progress
    declared: Sequence[str]
    diagnostics: list[Diagnostic] = field(default_factory=list)
    judgements: dict[EdgeSite, Judgement] = field(default_factory=dict)
    masks: dict[EdgeSite, list[frozenset[EdgeSite]]] = field(default_factory=dict)
    joint: dict[EdgeSite, Judgement] = field(default_factory=dict)
    untried: dict[EdgeSite, str] = field(default_factory=dict)
    ids: dict[EdgeSite, str] = field(default_factory=dict)

    def parts(
        self, reference: Outcome | None
    ) -> tuple[Green, tuple[Edge, ...], tuple[Diagnostic, ...]]:
        run = self.recording.run
        same = None if reference is None else _compare(reference, run.outcome)
        if self.recording.objection:
            return self._stopped(run, self.recording.objection, same)
        search = Search(self.runner, frozenset(), self.budget, _step_limit(run))
        base = Base(self.runner, run, search, self.budget, search.step_limit)
        try:
            green = self._green(base)
        except Abandoned as abandoned:
            return self._stopped(run, str(abandoned), same)
        except KeyboardInterrupt:
            return self._stopped(run, "interrupted", same)
        for _, variant in base.variants():
            self.diagnostics += from_trace(variant.trace, analyse(variant.trace))
        edges = self._edges(base)
        return replace(green, reference=same), edges, unique(self.diagnostics)

    def _stopped(
        self, run: Run, reason: str, same: verdict.Reference | None
    ) -> tuple[Green, tuple[Edge, ...], tuple[Diagnostic, ...]]:
        """Nothing can be said, and why."""
        found = analyse(run.trace)
        self.diagnostics.append(Diagnostic("inconclusive", "", 0, reason))
        self.diagnostics += [at(run.trace, n.site, n.kind, n.message) for n in run.trace.notes]
        green = Green("inconclusive", 1, 2, found.count, same)
        self._name([run.trace])
        edges = tuple(
            _edge_report(self.ids[e], e, _instances([run.trace], e), "inconclusive", reason)
            for e in self._judged()
        )
        return green, edges, unique(self.diagnostics)

    # -- the program as written -------------------------------------------------------------------

    def _green(self, base: Base) -> Green:
        """Steps 2 to 4."""
        search, serial = base.search, base.serial
        search.add(serial)
        self.progress("schedules", 0, 1)
        for schedule in demonstrations(serial.trace):
            search.run(schedule)
        base.analyse()
        races = self._races(base)
        search.exhaust(serial)
        base.analyse()
        self.progress("schedules", 1, 1)
        self._contradiction(base)
        return Green(self._verdict(base), len(search.outcomes), search.spent + 2,
                     sum(found.count for found in list(base.analyses.values())[:1]), None, races)

    def _races(self, base: Base) -> tuple[Race, ...]:
        """Reverse a few races of each pair of sites, each once in each direction."""
        reports: dict[tuple[object, ...], Race] = {}
        for key, variant in base.variants():
            trace = variant.trace
            for conflict in spread(trace, base.analyses[key].races):
                report = _race(trace, conflict)
                name = (report.hazard, report.memory, report.first, report.second)
                if name in reports and reports[name].changes_output:
                    continue
                reports[name] = report
                for schedule in holds(trace, [conflict]):
                    run = base.search.run(schedule)
                    if run is not None and run.outcome != base.serial.outcome:
                        token = self.make_token(run.schedule, frozenset())
                        reports[name] = replace(report, changes_output=True, witness=token)
                        break
        return tuple(reports.values())

    def _verdict(self, base: Base) -> verdict.GreenVerdict:
        search = base.search
        if len(search.outcomes) > 1:
            if not base.racy and not base.serial.trace.escapes:
                self.diagnostics.append(Diagnostic(
                    "choice-changes-output", "", 0,
                    "no race, but the output depends on how far the device was when asked: "
                    + " / ".join(str(schedule) for schedule in search.outcomes.values())))
            return "refuted"
        if not search.complete:
            self.diagnostics.append(Diagnostic("inconclusive", "", 0, search.gap))
            return "inconclusive"
        missing = verdict.lacking(self._evidence(base, None))
        if missing:
            self.diagnostics.append(Diagnostic("vacuous", "", 0, missing))
            return "inconclusive"
        return "proved"

    def _contradiction(self, base: Base) -> None:
        """On a race-free trace, schedules with the same answers must give the same bytes."""
        if base.racy or len(base.search.outcomes) < 2:
            return
        escapes = base.serial.trace.escapes
        answers = {self._answers(base, schedule) for schedule in base.search.outcomes.values()}
        if len(answers) == len(base.search.outcomes):
            return  # choices explain it
        if escapes:
            self.diagnostics.append(Diagnostic(
                "untracked-host-access", "", 0,
                f"schedules differ though the trace has no race: {escapes[0]}"))
            return
        schedules = " / ".join(str(s) for s in base.search.outcomes.values())
        raise InternalError(f"outputs differ although nothing races: {schedules}")

    def _answers(self, base: Base, schedule: Schedule) -> object:
        for key, run in base.search.variants.items():
            if run.schedule == schedule:
                return key
        return ()

    def _evidence(self, base: Base, hits: int | None, outcome: Outcome | None = None) -> Evidence:
        trace = base.serial.trace
        device = sum(s.kind is Kind.ACCESS and not trace.agents[s.agent].host for s in trace.steps)
        leaves = base.serial.outcome.leaves
        compared = sum(len(leaf.data) for leaf in leaves)
        conflicts = max((found.count + len(found.races) for found in base.analyses.values()),
                        default=0)
        return Evidence(device, conflicts, compared, base.search.spent + 2, hits)

    # -- the edges --------------------------------------------------------------------------------

    def _edges(self, base: Base) -> tuple[Edge, ...]:
        """Steps 5 to 7. Ctrl-C leaves what is not known yet inconclusive."""
        traces = [run.trace for _, run in base.variants()]
        self._name(traces)
        judged = self._judged()
        try:
            self._poison(base)
            for done, edge in enumerate(judged):
                self.progress("edges", done, len(judged))
                self.judgements[edge] = judge(base, frozenset((edge,)))
            self._mask(base, judged)
            self.progress("edges", len(judged), len(judged))
            reports = [self._report(base, edge) for edge in judged]
        except KeyboardInterrupt:
            reports = [self._report(base, e) if e in self.judgements and (
                self.judgements[e].changed) else _edge_report(
                    self.ids[e], e, _instances(traces, e), "inconclusive", "interrupted")
                for e in judged]
        known = {report.id for report in reports}
        reports += [Edge(name, "", "", 0, "", "", 0, "unexercised", "declared, but not reached")
                    for name in self.declared if name not in known]
        return tuple(reports)

    def _name(self, traces: list[Trace]) -> None:
        edges = list(dict.fromkeys(edge for trace in traces for edge in trace.edges))
        self.ids = dict(zip(edges, edge_ids(edges), strict=True))

    def _judged(self) -> list[EdgeSite]:
        glob = self.edges_glob
        return [e for e in self.ids if e.kind != "copy"
                and (glob is None or fnmatch(e.site.file, glob))]

    def _mask(self, base: Base, judged: list[EdgeSite]) -> None:
        """Step 6: sets of edges that cut a conflict together, from that conflict's own cuts."""
        dead = [e for e in judged if self.judgements[e].changed is False]
        candidates: dict[frozenset[EdgeSite], None] = {}
        for part in lost_orders(base, frozenset(dead)):
            gone = indices(part.trace, dead)
            for conflict in spread(part.trace, part.conflicts, 6):
                for cut in cuts(part.trace, conflict, gone):
                    if len(cut.edges) > 1:
                        candidates[frozenset(part.trace.edges[i] for i in cut.edges)] = None
        confirmed: list[frozenset[EdgeSite]] = []
        ordered = sorted(candidates, key=len)
        for rank, edges in enumerate(ordered):
            if any(mask <= edges for mask in confirmed):
                continue
            self.progress("sets of edges", rank, len(ordered))
            found = judge(base, edges) if rank < MAX_SETS else Judgement(
                None, f"more than {MAX_SETS} sets of edges cover each other")
            if found.changed:
                confirmed.append(edges)
            for edge in edges:
                if found.changed:
                    self.masks.setdefault(edge, []).append(edges)
                    self.joint.setdefault(edge, found)
                elif found.changed is None:
                    self.untried[edge] = found.reason

    def _report(self, base: Base, edge: EdgeSite) -> Edge:
        found = self.judgements[edge]
        traces = [run.trace for _, run in base.variants()]
        report = _edge_report(self.ids[edge], edge, _instances(traces, edge), "inconclusive",
                              found.reason, found.explored)
        report = replace(report, guards=_guards(found))
        missing = verdict.lacking(self._evidence(base, found.hits))
        if found.changed is None:
            return report
        if found.hits == 0:
            return replace(report, verdict="unexercised", reason=missing)
        if found.changed:
            if missing:
                return replace(report, reason=missing)
            return replace(report, verdict="load-bearing", witness=self._token(found))
        report = replace(report, covered_by=self._covers(base, edge))
        if edge in self.masks:
            others = tuple(tuple(sorted(self.ids[other] for other in mask - {edge}))
                           for mask in self.masks[edge])
            joint = self.joint[edge]
            return replace(report, verdict="masked", masked_with=others, witness=self._token(joint),
                           guards=_guards(joint), reason="alone it changes nothing")
        if edge in self.untried:
            return replace(report, reason=self.untried[edge])
        reason = found.reason or ("it ordered no conflict" if not report.covered_by
                                  else "its conflicts are ordered without it")
        return replace(report, verdict="redundant",
                       reason=f"{reason}, for this program and input")

    def _token(self, found: Judgement) -> str | None:
        return None if found.witness is None else self.make_token(found.witness, found.faults)

    def _covers(self, base: Base, edge: EdgeSite) -> tuple[str, ...]:
        """What orders the conflicts of an edge when it is gone."""
        names: dict[str, None] = {}
        for key, run in base.variants():
            trace = run.trace
            for index in indices(trace, [edge]):
                conflicts = [c for c in base.analyses[key].ordered()
                             if _between(trace, c, index)]
                conflicts.sort(key=lambda c: c.second - c.first)
                for conflict in conflicts[:MAX_COVERS]:
                    way = covers(trace, conflict, index)
                    names |= dict.fromkeys(self._cover_names(trace, way))
        return tuple(names)

    def _cover_names(self, trace: Trace, way: tuple[int, ...] | None) -> list[str]:
        if way is None:
            return []
        names = [self.ids[trace.edges[e]] for e in sorted(edges_of(trace, way))]
        names += [f"{place(trace.sites[trace.steps[i].site])} {trace.steps[i].op} (implicit)"
                  for i in way if not trace.steps[i].edges]
        return names or ["program order"]

    def _poison(self, base: Base) -> None:
        """Is the source of each pinned copy read when the copy executes, or at the call?"""
        trace = base.serial.trace
        for edge in trace.edges:
            if edge.kind != "copy":
                continue
            fault = frozenset((Fault("poison", edge),))
            run = self.runner.run(LAZY, fault, base.step_limit)
            (hit,) = fault
            if run.hits.get(hit, 0) == 0 or run.changed.get(hit, 0) == 0:
                message = "unexercised: the poison was not written or equals the data"
            elif run.outcome in base.search.outcomes:
                message = "inert: overwriting the source after the call changes no output"
            else:
                message = "live: the source is read when the copy executes"
            self.diagnostics.append(
                Diagnostic("poison", edge.site.file, edge.site.line, message))


def _step_limit(run: Run) -> int:
    return 20 * len(run.trace.steps) + 1000


def _compare(reference: Outcome, outcome: Outcome) -> verdict.Reference:
    return "identical" if reference == outcome else "different"


def _race(trace: Trace, conflict: Conflict) -> Race:
    spots = []
    for index in (conflict.first, conflict.second):
        step = trace.steps[index]
        site = trace.sites[step.site]
        spots.append(Spot(site.file, site.line, step.op, trace.agents[step.agent].name))
    return Race(conflict.hazard, memory_name(trace, conflict), False, None, *spots)


def _edge_report(name: str, edge: EdgeSite, instances: int, judged: verdict.EdgeVerdict,
                 reason: str, explored: int = 0) -> Edge:
    site = edge.site
    return Edge(name, edge.kind, site.file, site.line, site.function, site.code, instances,
                judged, reason, explored)


def _instances(traces: list[Trace], edge: EdgeSite) -> int:
    """How often the call was made, in the trace where it was made most often."""
    most = 1
    for trace in traces:
        for index in indices(trace, [edge]):
            counts: dict[Kind, int] = {}
            for step in trace.steps:
                if index in step.edges:
                    counts[step.kind] = counts.get(step.kind, 0) + 1
            most = max(most, *counts.values(), 0)
    return most


def _guards(found: Judgement) -> tuple[str, ...]:
    names: dict[str, None] = {}
    for part in found.lost:
        for conflict in spread(part.trace, part.conflicts, 1):
            names[conflict_name(part.trace, conflict)] = None
    return tuple(names)


def _between(trace: Trace, conflict: Conflict, edge: int) -> bool:
    return any(edge in trace.steps[i].edges for i in range(conflict.first, conflict.second + 1))
