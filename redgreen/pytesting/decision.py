"""Whether an item passes: asked here and nowhere else, from the JSON of a proof."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

from .work import Answer


@dataclass(frozen=True, slots=True)
class Green:
    """Claims that the program as written is right on every legal schedule."""

    reference: bool = False  # one was given, and must be matched
    listed: Collection[str] | None = None  # edges with an item of their own; None: not judged
    redundant: Mapping[str, str] = ()  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Red:
    """Claims that an edge is load-bearing, or with a reason that it is not."""

    edge: str
    redundant: str = ""  # the declared reason
    recorded: bool = True


Claim = Green | Red


@dataclass(frozen=True, slots=True)
class Decision:
    """``objection`` is why the claim does not hold, in one line; empty: the item passes."""

    verdict: str
    objection: str
    edge: Mapping[str, Any] | None = None
    witness: str = ""


def decide(claim: Claim, answer: Answer) -> Decision:
    """The only source of a decision without an objection."""
    if answer.kind != "done":
        return Decision(answer.kind, _unproved(answer))
    proof = answer.result
    if isinstance(claim, Red):
        edge = next((e for e in proof["edges"] if e["id"] == claim.edge), None)
        return _absent(claim) if edge is None else _edge(claim, edge)
    return _green(claim, proof)


def _unproved(answer: Answer) -> str:
    why = answer.result.get("why", "")
    last = answer.text.strip().splitlines()[-1] if answer.text.strip() else "no reason given"
    return {
        "raised": f"the program fails with every edge in place{': ' if why else ''}{why}",
        "usage": f"cannot be a subject: {answer.text}",
    }.get(answer.kind, f"an error in redgreen, please report it: {last}")


def _green(claim: Green, proof: Mapping[str, Any]) -> Decision:
    green = proof["green"]
    verdict = green["verdict"]
    witness = next((race["witness"] for race in green["races"] if race["witness"]), "")
    if verdict == "refuted":
        objection = f"refuted: {green['outcomes']} outcomes; {_culprit(proof)}"
    elif verdict != "proved":
        objection = f"{verdict}: {_why(proof)}"
    elif claim.reference and green["reference"] != "identical":
        objection = "the output differs from the reference's: every schedule agrees and is wrong"
    else:
        objection = _unlisted(claim, proof)
    return Decision(verdict, objection, None, witness)


def _culprit(proof: Mapping[str, Any]) -> str:
    for race in proof["green"]["races"]:
        if race["changes_output"]:
            first, second = race["first"], race["second"]
            return f"{race['hazard']} {_place(first)} and {_place(second)}, {race['memory']}"
    return _why(proof)


def _place(access: Mapping[str, Any]) -> str:
    return f"{access['file'].rpartition('/')[2]}:{access['line']}"


def _why(proof: Mapping[str, Any]) -> str:
    """The diagnostic that stopped the proof; the report has them all."""
    for wanted in ("inconclusive", "vacuous", "choice-changes-output", "untracked-host-access"):
        for note in proof["diagnostics"]:
            if note["kind"] == wanted:
                kind = "" if wanted == "inconclusive" else f"{wanted}: "
                return f"{kind}{(note['message'].splitlines() or [''])[0]}"
    return "no reason given"


def _unlisted(claim: Green, proof: Mapping[str, Any]) -> str:
    """Edges that only some schedules reach have no item: GREEN answers for them."""
    if claim.listed is None:
        return ""
    for edge in proof["edges"]:
        if edge["id"] not in claim.listed:
            reason = dict(claim.redundant).get(edge["id"], "")
            found = _edge(Red(edge["id"], reason), edge)
            if found.objection:
                return f"{edge['id']}, which has no item of its own: {found.objection}"
    return ""


def _absent(claim: Red) -> Decision:
    if claim.redundant and not claim.recorded:
        return Decision("stale", f"declared redundant, but there is no such edge: {claim.edge};"
                        " take the declaration away or correct its id")
    return Decision("unexercised", f"{claim.edge} was recorded, but not reached in the proof; if"
                    " the program changed outside its files, use --redgreen-refresh")


def _edge(claim: Red, edge: Mapping[str, Any]) -> Decision:
    verdict, witness = edge["verdict"], edge["witness"] or ""
    if verdict == "load-bearing":
        token = f": witness {witness}" if witness else f": {edge['reason']}"
        objection = f"declared redundant, but load-bearing{token}" if claim.redundant else ""
    elif verdict in ("redundant", "masked"):
        objection = "" if claim.redundant else f"not load-bearing: {_dead(edge)}"
    else:
        objection = f"not shown to be load-bearing: {verdict}: {_first(edge['reason'])}"
    return Decision(verdict, objection, edge, witness)


def _dead(edge: Mapping[str, Any]) -> str:
    if edge["verdict"] == "masked":
        return f"masked with {' or with '.join(' + '.join(s) for s in edge['masked_with'])}"
    if edge["covered_by"]:
        return f"covered by {', '.join(edge['covered_by'])}"
    return str(edge["reason"])


def _first(text: str) -> str:
    return (text.splitlines() or ["no reason given"])[0]
