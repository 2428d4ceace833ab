"""From a runner to a proof: record, judge the program, judge its edges, report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatch

from . import verdict
from .describe import edge_ids
from .diagnostics import at, from_trace, unique
from .explore import Abandoned, Search
from .faults import Action, Fault
from .green import MADE, InternalError, MakeToken, evidence, judge_program
from .hosts import unexplored
from .judge import Base, Judgement, indices, judge_edge, lost_names
from .masks import Masks, covered_by, find_masks
from .missing import missing_waits
from .mutants import Ring
from .races import analyse
from .recording import SubjectRaised, record
from .run import Outcome, Run, Runner, step_limit
from .schedule import LAZY
from .scoring import Mutants
from .trace import EdgeSite, Kind, Trace
from .verdict import Diagnostic, Edge, Green, Proof

__all__ = ["BUDGET", "InternalError", "SubjectRaised", "prove_runner"]

BUDGET = 256  # runs for each question

Progress = Callable[[str, int, int], None]  # what, how many done, of how many


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
    mutants: Sequence[Action] | None = None,
    rings: Sequence[Ring] = (),
) -> Proof:
    """Everything about one subject.

    Raises SubjectRaised if it fails as written and InternalError if redgreen contradicts itself;
    whatever else happens is in the proof. ``edges_glob`` chooses by file which edges are judged,
    ``declared`` lists edge ids that should have run. ``mutants`` are operators, None if not asked
    for; ``rings`` say where a collapse is to be tried.
    """
    recording = record(runner)
    run = recording.run
    same: verdict.Reference | None = None
    if reference is not None:
        same = "identical" if reference == run.outcome else "different"
    if recording.objection:
        green = Green("inconclusive", recording.outcomes, MADE, analyse(run.trace).count, same,
                      scope=unexplored(run.trace))
        return _stopped(subject, device, run, recording.objection, green, edges_glob, mutants)
    limit = step_limit(run.trace)
    base = Base(runner, run, Search(runner, frozenset(), budget, limit), budget, limit)
    try:
        progress("the program as written", 0, 1)
        judged = judge_program(base, make_token)
    except (Abandoned, KeyboardInterrupt) as stop:
        reason = str(stop) if isinstance(stop, Abandoned) else "interrupted"
        green = Green("inconclusive", len(base.search.all_outcomes()),
                      base.search.spent + MADE, analyse(run.trace).count, same,
                      scope=unexplored(run.trace))
        return _stopped(subject, device, run, reason, green, edges_glob, mutants)
    diagnostics, interrupted = judged.diagnostics, judged.interrupted
    try:
        for key, variant in base.variants():
            diagnostics += from_trace(variant.trace, base.analyses[key], base.search.hosts)
        mended = any(found.kind == "missing-edge" for found in diagnostics)
        refuted = judged.green.verdict == "refuted"
        if refuted and base.racy and not mended and not interrupted:
            progress("the wait that is missing", 0, 1)
            diagnostics += missing_waits(base)
    except KeyboardInterrupt:
        interrupted = True
    edges = _Edges(base, make_token, progress, edges_glob)
    reports = edges.reports(declared, interrupted)
    mutated = None
    if mutants is not None:
        section = Mutants(base, make_token, progress, lambda site: _wanted(site, edges_glob))
        mutated = section.reports(mutants, rings, edges.interrupted)
        diagnostics += section.diagnostics
    green = replace(judged.green, reference=same)
    return Proof(subject, device, green, reports, unique(diagnostics + edges.diagnostics), mutated)


def _stopped(subject: str, device: str, run: Run, reason: str, green: Green,
             edges_glob: str | None, mutants: Sequence[Action] | None) -> Proof:
    """Nothing can be said, and why."""
    trace = run.trace
    diagnostics = [Diagnostic("inconclusive", "", 0, reason)]
    diagnostics += [at(trace, note.site, note.kind, note.message) for note in trace.notes]
    edges = tuple(_edge(name, edge, [trace], "inconclusive", reason)
                  for edge, name in _names([trace]).items() if _wanted(edge, edges_glob))
    none = None if mutants is None else ()
    return Proof(subject, device, green, edges, unique(diagnostics), none)


@dataclass(slots=True)
class _Edges:
    """Steps 5 to 7 for all edges of a program."""

    base: Base
    make_token: MakeToken
    progress: Progress
    edges_glob: str | None
    interrupted: bool = False
    diagnostics: list[Diagnostic] = field(default_factory=list)
    judgements: dict[EdgeSite, Judgement] = field(default_factory=dict)
    masks: Masks = field(default_factory=Masks)
    ids: dict[EdgeSite, str] = field(default_factory=dict)
    traces: list[Trace] = field(default_factory=list)

    def reports(self, declared: Sequence[str], interrupted: bool) -> tuple[Edge, ...]:
        """Judge them; Ctrl-C leaves inconclusive what is not known yet."""
        self.traces = [run.trace for _, run in self.base.variants()]
        self.ids = _names(self.traces)
        judged = [edge for edge in self.ids if _wanted(edge, self.edges_glob)]
        others = [edge for edge in self.ids if edge.kind != "copy"]
        if others and not judged and self.edges_glob:
            self.diagnostics.append(Diagnostic(
                "no-edge-chosen", "", 0, f"no file with an edge matches {self.edges_glob}; there "
                f"are {len(others)} edges, one in {others[0].site.file}"))
        try:
            if interrupted:
                raise KeyboardInterrupt
            self._poison()
            for done, edge in enumerate(judged):
                self.progress("edges", done, len(judged))
                self.judgements[edge] = judge_edge(self.base, edge)
            dead = [edge for edge, found in self.judgements.items() if found.changed is False]
            self.masks = find_masks(self.base, dead, self.progress)
            if self.masks.doubt:
                self.diagnostics.append(Diagnostic(
                    "together", "", 0, "edges that are redundant each were not shown to be so all "
                    f"at once: {self.masks.doubt}"))
            reports = [self._report(edge) for edge in judged]
        except KeyboardInterrupt:
            self.interrupted = True
            self.diagnostics.append(Diagnostic("inconclusive", "", 0, "interrupted"))
            reports = [self._interrupted(edge) for edge in judged]
        reports += [Edge(name, "", "", 0, "", "", 0, "unexercised", "declared, but not reached")
                    for name in declared if name not in self.ids.values()]
        return tuple(reports)

    def _report(self, edge: EdgeSite) -> Edge:
        found = self.judgements[edge]
        report = _edge(self.ids[edge], edge, self.traces, "inconclusive", found.reason)
        report = replace(report, explored=found.explored, guards=lost_names(found))
        if found.changed is None:
            return report
        if found.hits == 0:
            return replace(report, verdict="unexercised", reason="the fault was not reached")
        missing = verdict.lacking(evidence(self.base, found.hits))
        if missing:  # who may take a call out is told as carefully as who must not
            return replace(report, reason=missing)
        if found.changed:
            return replace(report, verdict="load-bearing", witness=self._token(found))
        if not report.guards:  # else order is lost, and nothing covers it
            report = replace(report, covered_by=covered_by(self.base, edge, self.ids))
        return self._dead(edge, report)

    def _dead(self, edge: EdgeSite, report: Edge) -> Edge:
        """Alone it changes nothing: masked, or redundant."""
        if masks := self.masks.of(edge):
            others = tuple(tuple(sorted(self.ids[e] for e in mask - {edge})) for mask in masks)
            joint = self.masks.sets[masks[0]]
            return replace(report, verdict="masked", masked_with=others, guards=lost_names(joint),
                           reason="alone it changes nothing", witness=self._token(joint))
        if edge in self.masks.open:
            return replace(report, reason=self.masks.open[edge])
        reason = report.reason or ("its conflicts are ordered without it" if report.covered_by
                                   else "it ordered no conflict")
        return replace(report, verdict="redundant",
                       reason=f"{reason}, for this program and input")

    def _interrupted(self, edge: EdgeSite) -> Edge:
        found = self.judgements.get(edge)
        if found is not None and found.changed:
            return self._report(edge)
        return _edge(self.ids[edge], edge, self.traces, "inconclusive", "interrupted")

    def _token(self, found: Judgement) -> str | None:
        return None if found.witness is None else self.make_token(found.witness, found.faults)

    def _poison(self) -> None:
        """Is the source of each pinned copy read when the copy executes, or at the call?"""
        for edge in self.base.serial.trace.edges:
            if edge.kind == "copy":
                fault = Fault("poison", edge)
                run = self.base.runner.run(LAZY, frozenset((fault,)), self.base.step_limit)
                self.diagnostics.append(Diagnostic(
                    "poison", edge.site.file, edge.site.line, self._said(run, fault)))

    def _said(self, run: Run, fault: Fault) -> str:
        if run.outcome.status in ("timeout", "stuck"):
            return f"inconclusive: {run.outcome.status}"
        if run.trace.refusals:
            return f"inconclusive: refused: {run.trace.refusals[0]}"
        if run.hits.get(fault, 0) == 0 or run.changed.get(fault, 0) == 0:
            return "unexercised: the poison was not written or equals the data"
        if self.base.several and not self.base.is_new(run.outcome):
            return "inconclusive: the program has more than one outcome without it"
        if run.outcome in self.base.search.outcomes:
            return "inert: no output differs; nobody reads it late, or the program overwrites it"
        return "live: the source is read when the copy executes"


def _names(traces: list[Trace]) -> dict[EdgeSite, str]:
    edges = list(dict.fromkeys(edge for trace in traces for edge in trace.edges))
    return dict(zip(edges, edge_ids(edges), strict=True))


def _wanted(edge: EdgeSite, glob: str | None) -> bool:
    return edge.kind != "copy" and (glob is None or fnmatch(edge.site.file, glob))


def _edge(name: str, edge: EdgeSite, traces: list[Trace], judged: verdict.EdgeVerdict,
          reason: str) -> Edge:
    site = edge.site
    return Edge(name, edge.kind, site.file, site.line, site.function, site.code,
                _instances(traces, edge), judged, reason)


def _instances(traces: list[Trace], edge: EdgeSite) -> int:
    """How often the call was made, in the trace where it was made most often."""
    most = 1
    for trace in traces:
        for index in indices(trace, [edge]):
            counts = dict.fromkeys(Kind, 0)
            for step in trace.steps:
                counts[step.kind] += index in step.edges
            most = max(most, *counts.values())
    return most
