"""What a proof says, and the one place where a passing verdict is given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

SCHEMA = 1

GreenVerdict = Literal["proved", "refuted", "inconclusive"]
EdgeVerdict = Literal["load-bearing", "masked", "redundant", "unexercised", "inconclusive"]
MutantVerdict = Literal["killed", "survived", "inconclusive", "unexercised"]
Reference = Literal["identical", "different"]


@dataclass(frozen=True, slots=True)
class Evidence:
    """What must have happened before anything may pass."""

    device_steps: int  # accesses that a stream executed
    conflicts: int  # between two agents
    bytes_compared: int
    runs: int  # whose outcomes were compared
    hits: int | None = None  # how often the fault was reached; None: the claim needs no fault


def lacking(evidence: Evidence) -> str:
    """Why a claim must not pass; empty if nothing is missing. Every passing verdict asks here."""
    if evidence.device_steps == 0:
        return "no device work was enqueued"
    if evidence.conflicts == 0:
        return "no two agents touched the same bytes"
    if evidence.bytes_compared == 0:
        return "no output bytes to compare"
    if evidence.runs < 2:
        return "fewer than two runs were compared"
    if evidence.hits == 0:
        return "the fault was not reached"
    return ""


@dataclass(frozen=True, slots=True)
class Spot:
    """One access of a race."""

    file: str
    line: int
    op: str
    stream: str


@dataclass(frozen=True, slots=True)
class Race:
    """Racing accesses of one pair of sites to one memory."""

    hazard: str
    memory: str
    changes_output: bool
    witness: str | None
    first: Spot
    second: Spot


@dataclass(frozen=True, slots=True)
class Green:
    """The program as written."""

    verdict: GreenVerdict
    outcomes: int
    schedules: int
    conflicts: int
    reference: Reference | None = None
    races: tuple[Race, ...] = ()
    scope: str = "recorded host order"


@dataclass(frozen=True, slots=True)
class Edge:
    """One sync call site."""

    id: str
    kind: str
    file: str
    line: int
    function: str
    code: str
    instances: int
    verdict: EdgeVerdict
    reason: str = ""
    explored: int = 0
    guards: tuple[str, ...] = ()
    covered_by: tuple[str, ...] = ()
    masked_with: tuple[tuple[str, ...], ...] = ()
    witness: str | None = None


@dataclass(frozen=True, slots=True)
class Mutant:
    """One small change of the program at one site."""

    id: str
    operator: str
    kind: str
    file: str
    line: int
    function: str
    code: str
    instances: int
    verdict: MutantVerdict
    reason: str = ""
    explored: int = 0
    lost: tuple[str, ...] = ()
    witness: str | None = None


@dataclass(frozen=True, slots=True)
class Diagnostic:
    """Something worth knowing that is no verdict."""

    kind: str
    file: str
    line: int
    message: str


@dataclass(frozen=True, slots=True)
class Proof:
    """Everything that was found out about one subject."""

    subject: str
    device: str
    green: Green
    edges: tuple[Edge, ...] = ()
    diagnostics: tuple[Diagnostic, ...] = ()
    mutants: tuple[Mutant, ...] | None = None  # None: not asked for

    def to_dict(self) -> dict[str, Any]:
        """The JSON document, schema 1."""
        asked = {} if self.mutants is None else {"mutants": [_plain(m) for m in self.mutants]}
        return {
            "schema": SCHEMA,
            "subject": self.subject,
            "device": self.device,
            "green": {
                "verdict": self.green.verdict,
                "scope": self.green.scope,
                "outcomes": self.green.outcomes,
                "schedules": self.green.schedules,
                "conflicts": self.green.conflicts,
                "reference": self.green.reference,
                "races": [_plain(race) for race in self.green.races],
            },
            "edges": [_plain(edge) for edge in self.edges],
            "diagnostics": [_plain(diagnostic) for diagnostic in self.diagnostics],
            **asked,
        }


def _plain(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_plain(item) for item in value]
    if hasattr(value, "__dataclass_fields__"):
        return {name: _plain(getattr(value, name)) for name in value.__dataclass_fields__}
    return value
