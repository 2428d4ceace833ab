"""The part of a report that is about mutants."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

from .text import WIDTH, Style, clean, count, cut, paragraph, wrapped

_ORDER = ("inconclusive", "survived", "killed", "unexercised")
_COLOURS = {"killed": "green"}
_SURVIVES = {
    "early": "the record could be made one step earlier",
    "late": "the wait could come one step later",
    "stream": "the call does the same on the wrong stream",
    "collapse": "one buffer would do",
    "free": "no output depends on the reference that outlives the last use",
    "unpin": "pageable memory would do, with slower copies",
}

Named = Callable[[str | None, str], str]  # token, what it is a witness of -> its short name


def mutant_lines(proof: Mapping[str, Any], style: Style, named: Named) -> list[str]:
    """Verdicts and score; nothing if no mutants were asked for."""
    mutants = proof.get("mutants")
    if mutants is None:
        return []
    if not mutants:
        unknown = proof["green"]["verdict"] == "inconclusive"
        return ["MUTANTS  none: " + ("nothing is known of the program" if unknown else
                                     "the program has no place for those that were asked for")]
    tally = Counter(mutant["verdict"] for mutant in mutants)
    parts = ", ".join(f"{tally[verdict]} {verdict}" for verdict in _ORDER if tally[verdict])
    lines = [style(f"MUTANTS  {len(mutants)}: {parts}", "bold"), _score(tally)]
    for mutant in sorted(mutants, key=lambda mutant: _ORDER.index(mutant["verdict"])):
        lines += ["", *_mutant(mutant, style, named)]
    if tally["survived"]:
        lines += ["", "Survived holds for the program, input and host order that ran."]
    return lines


def _score(tally: Counter[str]) -> str:
    judged = tally["killed"] + tally["survived"]
    if not judged:
        return "score    none: no mutant was judged"
    return f"score    {tally['killed']} of {judged}, {100 * tally['killed'] / judged:.0f} %"


def _mutant(mutant: Mapping[str, Any], style: Style, named: Named) -> list[str]:
    verdict = mutant["verdict"]
    witness = named(mutant.get("witness"), mutant["id"])
    times = f", {count(mutant['instances'], 'time')}" if mutant["instances"] else ""
    title = f"{mutant['id']}{times}{', witness ' + witness if witness else ''}"
    head, *rest = wrapped(f"{verdict:<14}", title, 0)
    colour = _COLOURS.get(verdict, "yellow")
    lines = [style(head[: len(verdict)], colour) + head[len(verdict) :], *rest]
    if mutant.get("code"):
        source = cut(f"{mutant['line']} | {clean(mutant['code'])}", WIDTH - 4)
        lines.append("    " + style(source, "dim"))
    if verdict == "survived":
        lines += paragraph(_SURVIVES.get(mutant["operator"], ""), 4)
    lines += paragraph(mutant.get("reason", ""), 4)
    lines += [line for text in mutant.get("lost", ())[:1] for line in wrapped("loses ", text, 4)]
    return lines
