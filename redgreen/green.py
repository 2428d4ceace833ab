"""The program as written: steps 2 to 4. Do all legal schedules give the same bytes?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, replace
from itertools import chain, islice, pairwise
from pathlib import PurePath

from . import verdict
from .classes import choices, variant
from .describe import memory_name
from .directed import called, demonstrations, holds, spread
from .edges import path
from .explore import Abandoned
from .faults import Fault
from .hosts import explore_hosts, unexplored
from .judge import Base
from .races import Conflict
from .schedule import Schedule
from .tears import long_steps, tears
from .trace import Kind, Trace
from .verdict import Diagnostic, Evidence, Green, Race, Spot

MakeToken = Callable[[Schedule, frozenset[Fault]], str]
MADE = 2  # serial runs that were made and compared before
MAX_NAMED = 4  # blocks that may have been accessed unseen


class InternalError(Exception):
    """redgreen contradicts itself: an output differs although the order allows no difference."""


@dataclass(slots=True)
class Judged:
    """The verdict, and what else came to light."""

    green: Green
    diagnostics: list[Diagnostic] = field(default_factory=list)
    interrupted: bool = False


def judge_program(base: Base, make_token: MakeToken) -> Judged:
    """Demonstrate, reverse races, explore; the base then knows the program's outcomes."""
    search, serial = base.search, base.serial
    races, scope, before = _Races(base, make_token), unexplored(serial.trace), 0
    interrupted = False
    search.add(serial)
    try:
        for schedule in demonstrations(serial.trace):
            search.run(schedule)
        base.analyse()
        _show_races(base, races)
        search.exhaust(serial)
        base.analyse()
        before = search.spent + MADE
        scope = explore_hosts(base, races.show_calls)
        if search.hosts:
            _show_races(base, races)
    except (Abandoned, KeyboardInterrupt) as stop:
        if not base.several:
            raise
        interrupted = isinstance(stop, KeyboardInterrupt)  # refuted it is in any case
        search.complete, search.gap = False, "interrupted" if interrupted else str(stop)
    base.analyse()
    reports = tuple(races.reports.values())
    judged = Judged(Green("inconclusive", len(search.all_outcomes()), search.spent + MADE,
                          evidence(base).conflicts, None, reports, scope), interrupted=interrupted)
    judged.diagnostics += _missing_order(races, before)
    _contradiction(base, judged)
    judged.green = replace(judged.green, verdict=_verdict(base, judged))
    if not any(race.witness for race in reports):
        judged.diagnostics += _witness(base, make_token)
    return judged


def _missing_order(races: _Races, schedules: int) -> Iterator[Diagnostic]:
    """In the recorded order of the calls of host threads there was one outcome."""
    for early, late in dict.fromkeys(races.calls):
        yield Diagnostic(
            "missing-edge", late.file, late.line,
            f"{_caller(late)} does not wait until {_caller(early)} has made its call at "
            f"{PurePath(early.file).name}:{early.line}; with the calls in the recorded order, that "
            f"one first, {schedules} schedules have one outcome")


def _caller(spot: Spot) -> str:
    return spot.stream.rpartition(", by ")[2]


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
    return Evidence(device, conflicts, compared, base.search.spent + MADE, hits)


@dataclass(slots=True)
class _Races:
    """The reports of races, each with the first run that showed that it matters."""

    base: Base
    make_token: MakeToken
    reports: dict[Race, Race] = field(default_factory=dict)
    # Calls of host threads that make the difference if the second is made first.
    calls: list[tuple[Spot, Spot]] = field(default_factory=list)

    def show(self, report: Race, schedules: Iterable[Schedule]) -> None:
        """Run them until the output is another."""
        if self.reports.setdefault(report, report).changes_output:
            return
        for schedule in schedules:
            run = self.base.search.run(schedule)
            if run is not None and run.outcome != self.base.serial.outcome:
                token = self.make_token(run.schedule, frozenset())
                self.reports[report] = replace(report, changes_output=True, witness=token)
                return

    def show_calls(
        self, trace: Trace, conflict: Conflict, calls: tuple[int, int],
        schedules: Iterable[Schedule],
    ) -> None:  # fmt: skip
        """A conflict that two calls of host threads decide; a race where that matters."""
        spots = (_spot(trace, i, thread=True) for i in (conflict.first, conflict.second))
        report = Race(conflict.hazard, memory_name(trace, conflict), False, None, *spots)
        if report in self.reports:
            return
        self.show(report, schedules)
        if self.reports[report].changes_output:
            decisive = _record_and_wait(trace, conflict) or calls
            early, late = (_spot(trace, index, thread=True) for index in decisive)
            self.calls.append((early, late))
        else:
            del self.reports[report]


def _record_and_wait(trace: Trace, conflict: Conflict) -> tuple[int, int] | None:
    """What ordered the conflict in the recorded run, if that was a wait for the record of another
    thread: the record has to come first, which says more than that the first access has to."""
    way = path(trace, conflict.first, conflict.second) or ()
    for mark, wait in pairwise(way):
        steps = trace.steps[mark], trace.steps[wait]
        if steps[0].kind is Kind.PUBLISH and steps[1].kind is Kind.ACQUIRE and (
            steps[0].issuer != steps[1].issuer and not trace.agents[steps[0].agent].host
        ):
            return mark, wait
    return None


def _show_races(base: Base, races: _Races) -> None:
    """Reverse and tear a few races of each pair of sites and memory, until one changes the output;
    then let steps last as long as all that they race with."""
    for key, run in base.variants():
        trace, found = run.trace, base.analyses[key].races
        chosen = spread(trace, found)
        for conflict in chosen:
            ways = chain(holds(trace, [conflict]), tears(trace, [conflict]))
            races.show(_race(trace, conflict), called(run, ways))
        for conflict, schedule in long_steps(trace, found, chosen):
            races.show(_race(trace, conflict), called(run, [schedule]))


def _race(trace: Trace, conflict: Conflict) -> Race:
    spots = (_spot(trace, index) for index in (conflict.first, conflict.second))
    return Race(conflict.hazard, memory_name(trace, conflict), False, None, *spots)


def _spot(trace: Trace, index: int, thread: bool = False) -> Spot:
    """``thread``: say which host thread made the call."""
    step = trace.steps[index]
    site = trace.sites[step.site]
    who = trace.agents[step.agent].name
    if thread and step.agent != step.issuer:
        who = f"{who}, by {trace.agents[step.issuer].name}"
    return Spot(site.file, site.line, step.op, who)


def _contradiction(base: Base, judged: Judged) -> None:
    """On a race-free trace, runs with the same answers to choices give the same bytes."""
    serial = base.serial
    answers, here = choices(serial.trace), variant(serial.trace, base.search.hosts)
    if base.analyses[here].races:
        return
    for outcome, run in base.search.outcomes.items():
        if outcome == serial.outcome or choices(run.trace) != answers:
            continue
        if variant(run.trace, True) != variant(serial.trace, True):
            continue  # host threads made their calls in another order
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
        if not base.racy and not judged.green.races and not judged.diagnostics:
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
    if base.racy:
        judged.diagnostics.append(Diagnostic(
            "explored", "", 0, "no race changes the output: one run was made of each of the "
            f"{search.classes} classes of schedules that there are"))
    return "proved"
