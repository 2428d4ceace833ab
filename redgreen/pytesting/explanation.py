"""The text of a failing item: the one-line objection, then the report's part about it."""

from __future__ import annotations

from ..report.table import render
from ..report.text import wrapped
from .decision import Claim, Decision, Red
from .work import Answer


def explain(claim: Claim, decision: Decision, answer: Answer, again: str) -> str:
    """``again`` is the command that replays a witness."""
    if answer.kind != "done":
        # A RED item does not repeat the traceback that its GREEN item shows.
        hidden = isinstance(claim, Red) and answer.kind == "raised"
        said = decision.objection + (", see the GREEN item" if hidden else "")
        more = "" if hidden or answer.text in said else f"\n{answer.text}"
        return _folded(said) + more
    proof = dict(answer.result)
    if isinstance(claim, Red):
        if decision.edge is None:
            return _folded(decision.objection)
        proof["edges"] = [decision.edge]
        text = render(proof, parts=("edges", "witnesses"), again=again)
    else:
        text = render(proof, parts=("header", "races", "diagnostics", "witnesses"), again=again)
    return f"{_folded(decision.objection)}\n\n{text}"


def _folded(text: str) -> str:
    """To the width of the report, except a token, which is copied."""
    return text if "witness rg" in text else "\n".join(wrapped("", text, 0))
