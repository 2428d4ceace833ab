"""Judges the mutants of a program and reports them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

from . import verdict
from .describe import edge_ids
from .faults import Action, Fault
from .green import MakeToken, evidence
from .judge import Base, Judgement, lost_names
from .mutants import Ring, candidates, judge_mutant
from .trace import EdgeSite
from .verdict import Diagnostic, Mutant


@dataclass(slots=True)
class Mutants:
    """The mutants of one program."""

    base: Base
    make_token: MakeToken
    progress: Callable[[str, int, int], None]
    wanted: Callable[[EdgeSite], bool]
    diagnostics: list[Diagnostic] = field(default_factory=list)

    def reports(
        self, operators: Sequence[Action], rings: Sequence[Ring], interrupted: bool
    ) -> tuple[Mutant, ...]:
        """Judge them; Ctrl-C leaves inconclusive what is not known yet."""
        traces = [run.trace for _, run in self.base.variants()]
        faults = [f for f in candidates(traces, operators, rings) if self.wanted(f.edge)]
        sites = list(dict.fromkeys(fault.edge for fault in faults))
        ids = dict(zip(sites, edge_ids(sites), strict=True))
        judged: dict[Fault, Judgement] = {}
        try:
            if interrupted:
                raise KeyboardInterrupt
            for done, fault in enumerate(faults):
                self.progress("mutants", done, len(faults))
                judged[fault] = judge_mutant(self.base, fault)
        except KeyboardInterrupt:
            self.diagnostics.append(Diagnostic("inconclusive", "", 0, "interrupted"))
        reports = [self._report(ids[fault.edge], fault, judged.get(fault)) for fault in faults]
        for ring in rings if "collapse" in operators else ():
            if not any(f.action == "collapse" and ring.matches(f.edge) for f in faults):
                reports.append(Mutant(
                    f"{ring.file}:{ring.line} allocation [collapse]", "collapse", "allocation",
                    ring.file, ring.line, "", "", 0, "unexercised",
                    "declared, but nothing was allocated there"))
        return tuple(reports)

    def _report(self, name: str, fault: Fault, found: Judgement | None) -> Mutant:
        site = fault.edge.site
        report = Mutant(f"{name} [{fault.action}]", fault.action, fault.edge.kind, site.file,
                        site.line, site.function, site.code, 0, "inconclusive", "interrupted")
        if found is None:
            return report
        report = replace(report, instances=found.hits, reason=found.reason,
                         lost=lost_names(found), explored=found.explored)
        if found.changed is None:
            return report
        if found.hits == 0:
            return replace(report, verdict="unexercised")
        missing = verdict.lacking(evidence(self.base, found.hits))
        if missing:
            return replace(report, reason=missing)
        if not found.changed:
            return replace(report, verdict="survived")
        token = None
        if found.witness is not None:
            token = self.make_token(found.witness, found.faults)
        return replace(report, verdict="killed", witness=token)
