"""Runs one schedule again and says whether what the token promises still happens."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .difference import first_difference
from .faults import Fault, allocation_sites
from .report.text import clean, wrapped
from .run import Outcome, Run, Runner, step_limit
from .schedule import SERIAL, Order, Schedule, begin
from .subject import Subject
from .token import NotApplicable, Token, resolve


class BaseFailed(Exception):
    """The subject does not return without any fault: its traceback."""


@dataclass(frozen=True, slots=True)
class Replay:
    """A witness, run again."""

    token: Token
    faults: frozenset[Fault]  # at this program's edges
    base: Outcome  # no fault, serial
    run: Run
    real: bool = False  # on a real GPU, where a run can fail to say anything

    @property
    def reproduced(self) -> bool:
        """The promised bytes; or, where even the base has others than it had, any wrong ones.

        Bytes differ between machines, so there a digest can only say that the output went wrong.
        """
        outcome, base = self.run.outcome, self.base
        if outcome.digest().startswith(self.token.outcome) and self.token.outcome:
            return True
        moved = not base.digest().startswith(self.token.base) or not self.token.outcome
        return moved and outcome != base

    @property
    def inconclusive(self) -> str:
        """Why this run says nothing either way; "" where it does."""
        run = self.run
        if self.reproduced or not self.real:
            return ""
        if run.outcome.status in ("timeout", "stuck"):
            said = run.outcome.detail.strip().splitlines() or [""]
            return f"{run.outcome.status}: {said[-1]}"
        if run.trace.refusals:
            return run.trace.refusals[0]
        return f"{_kept_not(run.broken)} could not be kept" if run.broken else ""

    def _although(self) -> str:
        """On a real GPU it is observed whether a gate held."""
        if not self.run.held:
            return ""
        order = self.run.held[0]
        return (f", although {order.second} was seen to be held until {order.first} had run: this "
                "device disagrees with the one that the token is of")

    def text(self) -> str:
        """The schedule in words, the edge, the outcome and the first byte that differs."""
        lines = wrapped("schedule    ", _words(self.token.schedule), 0)
        for fault in self.faults:
            site = fault.edge.site
            lines += wrapped("fault       ", f"{fault.action} {site.file}:{site.line}"
                             f" {fault.edge.kind}: {clean(site.code)}", 0)  # fmt: skip
        if not self.faults:
            lines.append("fault       none: the program as written")
        lines += wrapped("outcome     ", _ending(self.run.outcome), 0)
        difference = first_difference(self.base, self.run.outcome)
        lines += wrapped("difference  ", difference or "none from the run without faults", 0)
        return "\n".join([*lines, "", "reproduced" if self.reproduced else self._why_not()]) + "\n"

    def _why_not(self) -> str:
        if self.inconclusive:
            return f"inconclusive: {self.inconclusive}"
        if self.run.outcome == self.base:
            return f"not reproduced: the output is the right one{self._although()}"
        return "not reproduced: the output is wrong, but not as recorded"


def _kept_not(broken: Sequence[Order]) -> str:
    return f"hold {broken[0].second} until {broken[0].first}"


def replay(token: Token, subject: Subject, runner: Runner) -> Replay:
    """Run ``subject`` without faults, then as ``token`` says; NotApplicable if it cannot be."""
    check_program(token, subject)
    base = runner.run(SERIAL)
    if base.outcome.status != "returned":
        raise BaseFailed(base.outcome.detail)
    faults = resolve(token.faults, [*base.trace.edges, *allocation_sites(base.trace)])
    run = runner.run(token.schedule, faults, step_limit(base.trace))
    _check_labels(token, [base, run])
    return Replay(token, faults, base.outcome, run, getattr(runner, "real", False))


def check_program(token: Token, subject: Subject) -> None:
    if token.program != subject.program:
        raise NotApplicable(
            f"token not applicable: it is of {token.program}, not of {subject.program}"
        )


def _check_labels(token: Token, runs: Sequence[Run]) -> None:
    schedule = token.schedule
    wanted = {label for o in (*schedule.orders, *schedule.calls)
              for label in (o.first, o.second)}
    wanted -= {begin(torn.step) for torn in schedule.torn}
    wanted |= {label for label, _ in schedule.choices} | {torn.step for torn in schedule.torn}
    missing = sorted(wanted - {step.label for run in runs for step in run.trace.steps})
    if missing:
        raise NotApplicable(f"token not applicable: this program has no step {missing[0]}")


def _words(schedule: Schedule) -> str:
    policy = {
        "serial": "each device step as soon as it is issued",
        "lazy": "no device step before something waits for it",
        "first": f"{schedule.stream} as soon as possible, the others late",
        "last": f"{schedule.stream} late, the others as soon as possible",
        "random": f"drawn at random from seed {schedule.seed}",
        "pct": f"by priorities from seed {schedule.seed}, changed at {schedule.late}",
        "late": f"each device step as soon as it is issued, but late: {schedule.late}",
    }[schedule.policy]
    parts = [_torn(torn.step, torn.how) for torn in schedule.torn]
    parts += [f"hold {o.second} until {o.first}" for o in schedule.orders]
    parts += [f"call {o.second} after {o.first}" for o in schedule.calls]
    parts += [f"answer {label} with {'yes' if yes else 'no'}" for label, yes in schedule.choices]
    return "; ".join([policy, *parts])


def _torn(step: str, how: str) -> str:
    if how == "stale":
        return f"{step} reads first ({begin(step)}) and writes later"
    return f"{step} writes half of its output first ({begin(step)}), the rest later"


def _ending(outcome: Outcome) -> str:
    said = outcome.leaves[0].data.decode("utf-8", "replace") if outcome.leaves else ""
    return {
        "returned": "returned an output",
        "raised": f"raised {said}",
        "died": f"the process died: {said}",
        "diverged": "never ended: it did many times more steps than the run without faults",
        "timeout": "no result in time",
        "stuck": "stuck: every thread waits for another",
    }[outcome.status]
