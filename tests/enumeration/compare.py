"""Where redgreen and the enumerator disagree about a program."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from .enumerate import Outcome, shown
from .expect import Expected
from .program import Program, Query, numbered
from .prove import Result, prove
from .render import render


@dataclass(slots=True)
class Comparison:
    program: Program
    result: Result
    torn: Expected
    whole: Expected
    verdicts: list[str]  # that were compared and equal
    inconclusive: list[str]  # not given because a bound was hit
    limits: list[str]  # of the overlaps of kernels, a few are tried: `_limit`
    disagreements: list[str]


def compare(program: Program, name: str, allocator: str = "native") -> Comparison:
    """Raises TooLarge before redgreen is asked."""
    torn = Expected(program, allocator=allocator)
    whole = Expected(program, whole=True, allocator=allocator)
    torn.edges(), whole.edges()
    result = prove(program, name, allocator)
    asked = {site for site, s in numbered(program) if isinstance(s, Query)}
    torn.unreached = whole.unreached = frozenset(asked - result.edges().keys())
    found = Comparison(program, result, torn, whole, [], [], [], [])
    _verdicts(found)
    found.disagreements += _outcomes(found)
    return found


def explain(comparison: Comparison) -> str:
    lines = [*comparison.disagreements, *comparison.limits]
    text = render(comparison.program).text.splitlines()
    return "\n".join([*lines, *(f"{i:3} {line}" for i, line in enumerate(text, 1))])


def _verdicts(found: Comparison) -> None:
    result = found.result
    lines = {site: line for line, site in result.source.lines.items()}
    got: dict[str, str] = {"green": result.proof.green.verdict}
    got |= {f"line {lines[site]}": verdict for site, verdict in result.edges().items()}
    torn, whole = _expected(found.torn, lines), _expected(found.whole, lines)
    if got.keys() != torn.keys():
        found.disagreements.append(f"edges: {sorted(got)}, expected {sorted(torn)}")
    for what, verdict in got.items():
        if verdict == "inconclusive":
            found.inconclusive.append(what)
        elif verdict == torn.get(what):
            found.verdicts.append(verdict)
        else:
            text = f"{what}: {verdict}, expected {torn.get(what)}"
            limit = _limit(found, verdict, whole.get(what)) if what != "green" else ""
            if limit:
                found.limits.append(f"{text} ({limit})")
            else:
                found.disagreements.append(text)
    masks = set(found.torn.masks())
    settled = not (found.disagreements or found.inconclusive or found.limits)
    if settled and result.masks() != masks:
        sets = [sorted(lines[site] for site in mask) for mask in sorted(masks, key=sorted)]
        mine = [sorted(lines[site] for site in mask) for mask in sorted(result.masks(), key=sorted)]
        found.disagreements.append(f"masking sets of lines: {mine}, expected {sets}")


def _limit(found: Comparison, verdict: str, whole: str | None) -> str:
    """Whether it comes from overlaps of kernels, of which redgreen tries a few."""
    if verdict == whole:
        return "right if kernels never overlap"
    base = [seen.outcome for seen in found.result.seen if not seen.dropped]
    if not all(_among(outcome, base) for outcome in found.torn.outcomes()):
        return "the program as written has torn outputs that no run had"
    return ""


def _expected(expected: Expected, lines: dict[int, int]) -> dict[str, str]:
    edges = {f"line {lines[site]}": verdict for site, verdict in expected.edges().items()}
    return {"green": expected.green(), **edges}


def _outcomes(found: Comparison) -> Iterator[str]:
    """Nothing that cannot be; and where all schedules were run, everything that can."""
    told = set()
    for seen in found.result.seen:
        expected = found.torn if seen.schedule.torn else found.whole
        known = (seen.dropped, seen.outcome)
        if known not in told and not _among(seen.outcome, expected.outcomes(seen.dropped)):
            told.add(known)
            yield (f"impossible outcome {seen.outcome} under {seen.schedule} without sites "
                   f"{sorted(seen.dropped)}; possible: {sorted(expected.outcomes(seen.dropped))}")
    if found.result.complete:
        seen_whole = [s.outcome for s in found.result.seen if not s.dropped and not s.schedule.torn]
        for outcome in found.whole.outcomes():
            if not _among(outcome, seen_whole):
                yield f"outcome {outcome} was never seen; seen: {sorted(set(seen_whole))}"


def _among(outcome: Outcome, others: Iterable[Outcome]) -> bool:
    return any(shown(outcome) == shown(other) for other in others)
