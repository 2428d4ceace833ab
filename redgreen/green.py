"""The program as written: steps 2 to 4. Do all legal schedules give the same bytes?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice

from . import verdict
from .describe import memory_name
from .explore import Abandoned, choices, demonstrations, holds, settled, spread
from .faults import Fault
from .judge import Base
from .races import Conflict
from .schedule import Schedule
from .tears import long_steps, tears
from .trace import Kind, Trace
from .verdict import Diagnostic, Evidence, Green, Race, Spot

MakeToken = Callable[[Schedule, frozenset[Fault]], str]
RECORDED = 2  # serial runs that were made and compared before
MAX_NAMED = 4  # blocks that may have been accessed unseen


class InternalError(Exception):
    """redgreen contradicts itself: an output differs although the order allows no difference."""


@dataclass(slots=True)
class Judged:
    """The verdict, and what else came to light."""

    green: Green
    diagnostics: list[Diagnostic] = field(default_factory=list)


def judge_program(base: Base, make_token: MakeToken) -> Judged:
    """Demonstrate, reverse races, explore; the base then knows the program's outcomes."""
    search, serial = base.search, base.serial
    races: tuple[Race, ...] = ()
    search.add(serial)
    try:
        for schedule in demonstrations(serial.trace):
            search.run(schedule)
        base.analyse()
        races = _races(base, make_token)
        search.exhaust(serial)
    except Abandoned as abandoned:
        if not base.several:
            raise
        search.complete, search.gap = False, str(abandoned)  # refuted it is in any case
    base.analyse()
    judged = Judged(Green("inconclusive", len(search.all_outcomes()), search.spent + RECORDED,
                          evidence(base).conflicts, None, races))
    _contradiction(base, judged)
    judged.green = replace(judged.green, verdict=_verdict(base, judged))
    if not any(race.witness for race in races):
        judged.diagnostics += _witness(base, make_token)
    return judged


def _witness(base: Base, make_token: MakeToken) -> Iterator[Diagnostic]:
    """Refuted, and not by one race: the token of a run with another output than the serial one."""
    for outcome, run in base.search.all_outcomes().items():
        if outcome != base.serial.outcome:
            yield Diagnostic("witness", "", 0, make_token(run.schedule, frozenset()))
            return


def evidence(base: Base, hits: int | None = None) -> Evidence:
    """What was seen to happen in the program as written (and the fault's hits)."""
    trace = base.serial.trace
    device = sum(s.kind is Kind.ACCESS and not trace.agents[s.agent].host for s in trace.steps)
    compared = sum(len(leaf.data) for leaf in base.serial.outcome.leaves)
    conflicts = max(found.count + len(found.races) for found in base.analyses.values())
    return Evidence(device, conflicts, compared, base.search.spent + RECORDED, hits)


def _races(base: Base, make_token: MakeToken) -> tuple[Race, ...]:
    """Reverse and tear a few races of each pair of sites and memory, until one changes the output;
    then let steps last as long as all that they race with."""
    reports: dict[Race, Race] = {}

    def show(report: Race, schedules: Iterable[Schedule]) -> None:
        """Run them until the output is another."""
        if reports.setdefault(report, report).changes_output:
            return
        for schedule in schedules:
            run = base.search.run(schedule)
            if run is not None and run.outcome != base.serial.outcome:
                token = make_token(run.schedule, frozenset())
                reports[report] = replace(report, changes_output=True, witness=token)
                return

    for key, variant in base.variants():
        trace, races = variant.trace, base.analyses[key].races
        chosen = spread(trace, races)
        for conflict in chosen:
            ways = holds(trace, [conflict]), tears(trace, [conflict])
            show(_race(trace, conflict), chain(*ways))
        for conflict, schedule in long_steps(trace, races, chosen):
            show(_race(trace, conflict), [schedule])
    return tuple(reports.values())


def _race(trace: Trace, conflict: Conflict) -> Race:
    spots = []
    for index in (conflict.first, conflict.second):
        step = trace.steps[index]
        site = trace.sites[step.site]
        spots.append(Spot(site.file, site.line, step.op, trace.agents[step.agent].name))
    return Race(conflict.hazard, memory_name(trace, conflict), False, None, *spots)


def _contradiction(base: Base, judged: Judged) -> None:
    """On a race-free trace, runs with the same answers to choices give the same bytes."""
    serial = base.serial
    answers = choices(serial.trace)
    if base.analyses[settled(serial.trace)].races:
        return
    for outcome, run in base.search.outcomes.items():
        if outcome == serial.outcome or choices(run.trace) != answers:
            continue
        traces = (serial.trace, run.trace)
        unseen = dict.fromkeys(chain(*(t.escapes for t in traces), *(t.suspects for t in traces)))
        if not unseen:
            raise InternalError(f"nothing races, but the output differs under {run.schedule}")
        judged.diagnostics.append(Diagnostic(
            "untracked-host-access", "", 0, f"the output differs under {run.schedule} though the "
            f"trace has no race: {'; '.join(islice(unseen, MAX_NAMED))}"))


def _verdict(base: Base, judged: Judged) -> verdict.GreenVerdict:
    search = base.search
    if base.several:
        if not base.racy and not judged.diagnostics:
            schedules = " / ".join(str(run.schedule) for run in search.outcomes.values())
            judged.diagnostics.append(Diagnostic(
                "choice-changes-output", "", 0, "no race, but the output depends on how far the "
                f"device was when asked: {schedules}"))
        return "refuted"
    if not search.complete:
        judged.diagnostics.append(Diagnostic("inconclusive", "", 0, search.gap))
        return "inconclusive"
    missing = verdict.lacking(evidence(base))
    if missing:
        judged.diagnostics.append(Diagnostic("vacuous", "", 0, missing))
        return "inconclusive"
    return "proved"
