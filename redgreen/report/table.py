"""The report of a proof, rendered from its JSON and from nothing else."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from .mutants import mutant_lines
from .text import WIDTH, Style, clean, count, cut, folded, paragraph, wrapped

_VERDICTS = {
    "proved": "green", "refuted": "red", "load-bearing": "green", "masked": "yellow",
    "redundant": "yellow", "unexercised": "yellow", "inconclusive": "yellow",
}  # fmt: skip
_ORDER = ("inconclusive", "load-bearing", "masked", "redundant", "unexercised")
_ELSEWHERE = ("witness", "missing-edge")  # diagnostics that have places of their own
_GUARDS, _COVERS = 1, 3  # shown of the conflicts that an edge guards, and of what covers it


PARTS = ("header", "edges", "mutants", "races", "diagnostics", "witnesses")


def render(
    proof: Mapping[str, Any], *, colour: bool = False, parts: Sequence[str] = PARTS, again: str = ""
) -> str:
    """The report or some parts of it, at most 100 columns wide.

    ``again`` is the command that replays a TOKEN, by default redgreen's own.
    """
    style = Style(colour)
    witnesses: dict[str, str] = {}  # token -> its short name
    owners: dict[str, list[str]] = {}
    again = again or f"redgreen replay TOKEN {proof['subject']}"
    makers: dict[str, Callable[[], list[str]]] = {
        "header": lambda: _header(proof, style),
        "edges": lambda: _edges(proof, style, witnesses, owners),
        "mutants": lambda: mutant_lines(proof, style, partial(_named, names=witnesses,
                                                              owners=owners)),
        "races": lambda: _races(proof, style, witnesses, owners),
        "diagnostics": lambda: _diagnostics(proof, style),
        "witnesses": lambda: _witnesses(again, style, witnesses, owners),
    }
    blocks = [makers[part]() for part in PARTS if part in parts]
    return "\n\n".join("\n".join(block) for block in blocks if block) + "\n"


def _header(proof: Mapping[str, Any], style: Style) -> list[str]:
    green = proof["green"]
    verdict = green["verdict"]
    facts = (
        f"{count(green['outcomes'], 'outcome')} in {count(green['schedules'], 'schedule')},"
        f" {count(green['conflicts'], 'conflict')} between agents"
    )
    lines = wrapped("subject    ", proof["subject"], 0)
    lines += wrapped("device     ", proof["device"], 0)
    lines.append(f"green      {style(verdict, _VERDICTS.get(verdict, ''))}: {facts}")
    lines += wrapped("scope      ", green["scope"], 0)
    reference = green.get("reference")
    if reference == "different":
        text = "different: every schedule may agree and be wrong"
        lines.append(f"reference  {style(text, 'red')}")
    else:
        lines.append(f"reference  {reference or 'none given'}")
    return lines


def _edges(
    proof: Mapping[str, Any], style: Style, names: dict[str, str], owners: dict[str, list[str]]
) -> list[str]:
    edges = proof["edges"]
    if not edges:
        kinds = {note["kind"] for note in proof["diagnostics"]}
        why = ("no file that was asked for has one" if "no-edge-chosen" in kinds
               else "the program made no sync call that can be taken out")  # fmt: skip
        return [f"EDGES  none: {why}"]
    tally = Counter(edge["verdict"] for edge in edges)
    parts = [f"{tally[v]} {v}" for v in sorted(tally, key=_rank)]
    lines = [style(f"EDGES  {count(len(edges), 'site')}: {', '.join(parts)}", "bold")]
    for edge in sorted(edges, key=lambda edge: _rank(edge["verdict"])):
        lines += ["", *_edge(edge, style, names, owners)]
    if tally["redundant"]:
        holds = "Redundant holds for the program, input and host order that ran, not for others."
        lines += ["", holds]
        if proof["green"]["verdict"] == "refuted":
            lines += ["The program is refuted. Mend that first: the right one may need them."]
    return lines


def _rank(verdict: str) -> tuple[int, str]:
    return (_ORDER.index(verdict) if verdict in _ORDER else len(_ORDER), verdict)


def _edge(
    edge: Mapping[str, Any], style: Style, names: dict[str, str], owners: dict[str, list[str]]
) -> list[str]:
    verdict = edge["verdict"]
    witness = _named(edge.get("witness"), edge["id"], names, owners)
    times = count(edge["instances"], "time")
    title = f"{edge['id']}, {times}{', witness ' + witness if witness else ''}"
    head, *rest = wrapped(f"{verdict:<14}", title, 0)
    lines = [style(head[: len(verdict)], _VERDICTS.get(verdict, "")) + head[len(verdict) :], *rest]
    if edge.get("code"):
        source = cut(f"{edge['line']} | {clean(edge['code'])}", WIDTH - 4)
        lines.append("    " + style(source, "dim"))
    lines += paragraph(edge.get("reason", ""), 4)
    lines += _some("guards ", edge.get("guards", ()), _GUARDS)
    lines += _some("covered by ", edge.get("covered_by", ()), _COVERS)
    for others in edge.get("masked_with", ()):
        lines += wrapped("masked with ", " + ".join(others), 4)
    return lines


def _some(label: str, texts: Sequence[str], few: int) -> list[str]:
    """The JSON has them all."""
    shown = [line for text in texts[:few] for line in wrapped(label, text, 4)]
    left = len(texts) - few
    return shown if left <= 0 else [*shown, f"    {label}{left} more, in the JSON"]


def _races(
    proof: Mapping[str, Any], style: Style, names: dict[str, str], owners: dict[str, list[str]]
) -> list[str]:
    for note in proof["diagnostics"]:
        if note["kind"] == "witness":  # of no race in particular
            _named(note["message"], "the program as written", names, owners)
    races = proof["green"]["races"]
    if not races:
        return []
    proved = proof["green"]["verdict"] == "proved"
    harmless = "benign: no output differs" if proved else "by itself it was not seen to change any"
    lines = [style(f"RACES  {len(races)} in the program as written", "bold")]
    for race in races:
        harm = "changes the output" if race["changes_output"] else harmless
        pair = f"{_place(race['first'])} and {_place(race['second'])}"
        witness = _named(race.get("witness"), f"{race['hazard']} {pair}", names, owners)
        title = f"{race['memory']}: {harm}{', witness ' + witness if witness else ''}"
        head, *rest = wrapped(f"{race['hazard']:<9} ", title, 0)
        colour = "red" if race["changes_output"] else "yellow"
        lines += ["", style(head[: len(race["hazard"])], colour) + head[len(race["hazard"]) :]]
        lines += rest
        for name in ("first", "second"):
            access = race[name]
            where = f"{_place(access)} {access['op']} on {access['stream']}"
            lines += wrapped(f"{name:<7}", where, 4)
        lines += [
            line for name in ("allocated", "freed") if race.get(name)
            for line in wrapped(f"{name:<10}", race[name], 4)
        ]  # fmt: skip
    return lines + _missing(proof, style)


def _missing(proof: Mapping[str, Any], style: Style) -> list[str]:
    notes = [note for note in proof["diagnostics"] if note["kind"] == "missing-edge"]
    lines = ["", style(f"MISSING  {count(len(notes), 'wait')}", "bold"), ""] if notes else []
    for note in notes:
        lines += wrapped("", f"{_place(note)}: {note['message']}", 0)
    return lines


def _place(access: Mapping[str, Any]) -> str:
    return f"{_shown(str(access['file']))}:{access['line']}"


def _shown(file: str) -> str:
    """As short as it is clear: without the environment's folder, or below where we are."""
    library = file.rpartition("/site-packages/")[2]
    here = os.path.join(os.getcwd(), "")
    return library if library != file else file.removeprefix(here)


def _diagnostics(proof: Mapping[str, Any], style: Style) -> list[str]:
    notes = [note for note in proof["diagnostics"] if note["kind"] not in _ELSEWHERE]
    if not notes:
        return []
    lines = [style(f"DIAGNOSTICS  {len(notes)}", "bold"), ""]
    for note in notes:
        place = f"{_place(note)}: " if note.get("file") else ""
        first, *rest = str(note["message"]).splitlines() or [""]
        lines += wrapped("", f"{place}{note['kind']}: {first}", 0)
        lines += [line for text in rest for line in paragraph(text, 2)]
    return lines


def _named(
    token: str | None, owner: str, names: dict[str, str], owners: dict[str, list[str]]
) -> str:
    """The short name under which the token is listed, "" without one."""
    if not token:
        return ""
    owners.setdefault(token, []).append(owner)
    return names.setdefault(token, f"W{len(names) + 1}")


def _witnesses(
    again: str, style: Style, names: dict[str, str], owners: dict[str, list[str]]
) -> list[str]:
    if not names:
        return []
    lines = [style("WITNESSES", "bold")]
    lines += wrapped("", f"Run one again: {again}", 0)
    for token, name in names.items():
        lines += ["", *wrapped(f"{name}  ", "; ".join(owners[token]), 0), *folded(token)]
    return lines
