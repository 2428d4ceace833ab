"""What a prover is asked and what it answers; the answering side runs where torch is imported."""

from __future__ import annotations

import json
import tempfile
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from .case import Case, digest
from .options import Settings

if TYPE_CHECKING:
    from ..run import Outcome, Run

NOTHING = ""  # a glob that no file matches: judge the program and no edge


@dataclass(frozen=True, slots=True)
class Request:
    """One piece of work."""

    what: Literal["record", "prove", "replay"]
    case: Case
    settings: Settings
    token: str = ""


@dataclass(frozen=True, slots=True)
class Answer:
    """The result, or why there is none. JSON in all its parts.

    raised: the subject raises with every edge in place. skipped: it called pytest.skip. usage: it
    cannot be run. internal: redgreen failed, with a traceback.
    """

    kind: Literal["done", "raised", "skipped", "usage", "internal"] = "done"
    text: str = ""
    result: Mapping[str, Any] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


def answer(request: Request) -> Answer:
    """Do it; nothing is raised."""
    from ..subject import UsageError

    work = {"record": _record, "prove": _prove, "replay": _replay}[request.what]
    try:
        return work(request)
    except UsageError as error:
        return Answer("usage", str(error))
    except BaseException:
        return Answer("internal", traceback.format_exc())


def _record(request: Request) -> Answer:
    """Which edges there are: one serial run, and one with everything late for other branches."""
    from ..api import make_runner
    from ..describe import edge_ids
    from ..run import step_limit
    from ..schedule import LAZY, SERIAL

    settings = request.settings
    with tempfile.NamedTemporaryFile(suffix=".json") as sources:
        case = replace(request.case, sources=sources.name)
        runner = make_runner(case, settings.device, settings.allocator, settings.timeout)
        serial = runner.run(SERIAL)
        if serial.outcome.status != "returned":
            return _failed(serial.outcome)
        lazy = runner.run(LAZY, frozenset(), step_limit(serial.trace))
        digests = json.loads(Path(sources.name).read_text() or "{}")
    edges = list(dict.fromkeys([*serial.trace.edges, *lazy.trace.edges]))
    found = [
        {"id": name, "file": edge.site.file, "line": edge.site.line}
        for edge, name in zip(edges, edge_ids(edges), strict=True)
        if edge.kind != "copy"
    ]
    return Answer(result={"edges": found, "sources": {**_sites(serial), **_sites(lazy), **digests}})


def _failed(outcome: Outcome) -> Answer:
    said = outcome.leaves[0].data.decode("utf-8", "replace") if outcome.leaves else ""
    if said.startswith("Skipped: "):  # it called pytest.skip
        return Answer("skipped", said.removeprefix("Skipped: "))
    detail = outcome.detail or outcome.status
    return Answer("raised", detail, {"why": said or detail.splitlines()[0]})


def _sites(run: Run) -> dict[str, str]:
    """The files of the sites, installed libraries included: their lines are in the ids."""
    files = {site.file for site in run.trace.sites}
    return {file: digest(file) for file in files if Path(file).is_file()}


def _prove(request: Request) -> Answer:
    from ..api import SubjectRaised, prove_subject

    settings = request.settings
    try:
        proof = prove_subject(
            request.case, device=settings.device, reference=request.case.reference,
            timeout=settings.timeout, budget=settings.budget, edges=settings.edges,
            allocator=settings.allocator,
        )  # fmt: skip
    except SubjectRaised as error:
        return Answer("raised", str(error))
    return Answer(result=proof.to_dict())


def _replay(request: Request) -> Answer:
    from ..api import make_runner
    from ..replay import BaseFailed, replay
    from ..token import decode

    token, settings = decode(request.token), request.settings
    runner = make_runner(request.case, settings.device, token.allocator, settings.timeout)
    try:
        again = replay(token, request.case, runner)
    except BaseFailed as error:
        return Answer("raised", str(error))
    return Answer(result={"reproduced": again.reproduced, "text": again.text()})
