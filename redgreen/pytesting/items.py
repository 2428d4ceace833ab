"""The items of a subject: one GREEN, one RED per edge; or one that replays a token."""

from __future__ import annotations

import os
import shlex
import traceback
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

import pytest

from . import session
from .case import Case
from .decision import Claim, Decision, Green, Red, decide
from .explanation import explain
from .mark import Mark, NotASubject, merged
from .options import Settings
from .signature import arguments, pickled

_OWN = ("redgreen", "parametrize", "usefixtures")  # marks that are used up here


@dataclass(frozen=True, slots=True)
class Subject:
    """What the items of one test function (with one set of parameters) have in common."""

    node: str
    case: Case
    settings: Settings
    mark: Mark
    edges: tuple[str, ...] = ()
    cached: bool = False  # the recording is of an earlier session


class SubjectItem(pytest.Item):
    """An item of a subject; the others say what its run is."""

    def __init__(
        self, *, origin: pytest.Function, marks: tuple[str, ...] = (), **rest: Any
    ) -> None:
        super().__init__(**rest)
        self.obj = origin.obj  # conditions of skipif are looked up in its globals
        self.origin = origin
        self.own_markers += [m for m in origin.own_markers if m.name not in _OWN]
        self.keywords.update({m.name: m for m in self.own_markers})
        self.extra_keyword_matches |= {origin.originalname}
        for name in marks:
            self.add_marker(name)

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        path, line, domain = self.origin.reportinfo()
        return path, line, f"{domain.removesuffix(self.origin.name)}{self.name}"

    def runtest(self) -> None:
        raise NotImplementedError

    def note(self, **properties: str) -> None:
        """For JUnit and for the table on the controller: xdist carries these."""
        self.user_properties += [(f"redgreen_{name}", text) for name, text in properties.items()]


class BrokenItem(SubjectItem):
    """A subject without a recording; selected by both markers, so that none loses it."""

    def __init__(
        self, *, reason: str, detail: str = "", problem: str = "usage", **rest: Any
    ) -> None:
        super().__init__(marks=("green", "red"), **rest)
        self.reason, self.detail, self.problem = reason, detail, problem

    def runtest(self) -> None:
        if self.problem == "skipped":
            pytest.skip(self.reason)
        node = self.origin.nodeid
        session.of(self.config).failed(node, self.problem, self.reason)
        self.note(subject=node, claim="green", verdict=self.problem, witness="", note=self.reason,
                  recording="none")  # fmt: skip
        detail = "" if self.detail in self.reason else f"\n{self.detail}"
        pytest.fail(f"{self.reason}{detail}", pytrace=False)


class ClaimItem(SubjectItem):
    """GREEN or RED: the proof is asked for, and one function decides."""

    def __init__(self, *, subject: Subject, claim: Claim, **rest: Any) -> None:
        super().__init__(marks=("red" if isinstance(claim, Red) else "green",), **rest)
        self.subject, self.claim = subject, claim

    def runtest(self) -> None:
        subject, here = self.subject, session.of(self.config)
        claim = self.claim
        if isinstance(claim, Green) and subject.node in here.with_edges:
            claim = Green(claim.reference, subject.edges, subject.mark.redundant)
        answer = here.proof(subject.node, subject.case, subject.settings)
        decision = decide(claim, answer)
        self._note(claim, decision)
        if decision.objection:
            text = explain(claim, decision, answer, self._again())
            pytest.fail(text, pytrace=False)

    def _note(self, claim: Claim, decision: Decision) -> None:
        edge, reason = (claim.edge, claim.redundant) if isinstance(claim, Red) else ("", "")
        said = f"declared: {reason}" if reason and not decision.objection else decision.objection
        self.note(
            subject=self.subject.node, claim=edge or "green", verdict=decision.verdict,
            witness=decision.witness, note=said,
            recording="cached" if self.subject.cached else "new",
        )  # fmt: skip

    def _again(self) -> str:
        file = shlex.quote(os.path.relpath(self.subject.case.file))
        return f"pytest {file} --redgreen-replay TOKEN"


class ReplayItem(SubjectItem):
    """Passes if what the token promises happens again."""

    def __init__(self, *, subject: Subject, token: str, hash_seed: str, **rest: Any) -> None:
        super().__init__(**rest)
        self.subject, self.token, self.hash_seed = subject, token, hash_seed

    def runtest(self) -> None:
        subject = self.subject
        here = session.of(self.config)
        answer = here.again(subject.case, subject.settings, self.token, self.hash_seed)
        if answer.kind != "done":
            pytest.fail(answer.text, pytrace=False)
        text = answer.result["text"].rstrip()
        if not answer.result["reproduced"]:
            pytest.fail(f"{text.splitlines()[-1]}\n{text}", pytrace=False)
        self.note(subject=subject.node, replay=text)


def expand(function: pytest.Function) -> list[pytest.Item]:
    """The items that take the place of a marked function. A collection error helps nobody:
    whatever goes wrong is a failing item."""
    try:
        return list(_expanded(function))
    except NotASubject as error:
        return [_broken(function, f"not a redgreen subject: {error}")]
    except Exception as error:
        reason = f"an error in redgreen, please report it: {error!r}"
        return [_broken(function, reason, traceback.format_exc(), "internal")]


def _expanded(function: pytest.Function) -> Iterator[pytest.Item]:
    here = session.of(function.config)
    mark = merged(function.iter_markers("redgreen"))
    settings = here.settings_for(mark.settings)
    subject = Subject(function.nodeid, _case(function, mark), settings, mark)
    if here.replay is not None:
        yield from _replaying(function, subject, here.replay)
    elif _skipped(function):  # it may not even be possible to run it
        yield _item(ClaimItem, function, "green", subject=subject, claim=Green())
    else:
        yield from _recorded(function, subject, here)


def _recorded(
    function: pytest.Function, subject: Subject, here: session.Session
) -> Iterator[pytest.Item]:
    recording = here.recording(subject.node, subject.case, subject.settings)
    problem = recording.problem
    if problem is not None:
        skips = problem.kind == "skipped"
        reason = problem.text if skips else decide(Green(), problem).objection
        yield _broken(function, reason, problem.text, problem.kind)
        return
    known = [edge["id"] for edge in recording.edges]
    chosen = [edge["id"] for edge in recording.edges if _wanted(edge, subject.settings.edges)]
    declared = subject.mark.redundant
    chosen += [edge for edge in declared if edge not in known]
    subject = Subject(subject.node, subject.case, subject.settings, subject.mark, tuple(chosen),
                      recording.cached)
    green = Green(reference=subject.mark.reference is not None)
    yield _item(ClaimItem, function, "green", subject=subject, claim=green)
    for edge in chosen:
        claim = Red(edge, declared.get(edge, ""), edge in known)
        yield _item(ClaimItem, function, f"red:{edge}", subject=subject, claim=claim)


def _replaying(
    function: pytest.Function, subject: Subject, text: str
) -> Iterator[pytest.Item]:
    from ..token import decode

    token = decode(text)
    if token.program == subject.case.program:
        yield _item(ReplayItem, function, "replay", subject=subject, token=text,
                    hash_seed=token.hash_seed)


def _wanted(edge: Mapping[str, Any], glob: str | None) -> bool:
    return glob is None or fnmatch(edge["file"], glob)


def _case(function: pytest.Function, mark: Mark) -> Case:
    file = str(function.path)
    name = function.originalname
    # A method that a class inherits belongs to the class that pytest found it in.
    path = f"{function.cls.__qualname__}.{name}" if function.cls is not None else name
    suffix = function.name.removeprefix(name)
    shown = os.path.relpath(file, Path.cwd())
    call = pickled(arguments(function), mark.reference)
    reference = getattr(mark.reference, "__qualname__", "" if mark.reference is None else "given")
    return Case(file, function.module.__name__, path, suffix, f"{shown}:{path}{suffix}", call,
                reference)


def _skipped(function: pytest.Function) -> bool:
    conditions = (mark.args[:1] for mark in function.iter_markers("skipif"))
    return any(c == (True,) for c in conditions) or any(function.iter_markers("skip"))


def _broken(
    function: pytest.Function, reason: str, detail: str = "", problem: str = "usage"
) -> pytest.Item:
    return _item(BrokenItem, function, "green", reason=reason, detail=detail, problem=problem)


def _item(
    kind: type[SubjectItem], function: pytest.Function, what: str, **rest: Any
) -> SubjectItem:
    name = function.name
    # test_decode[green], and test_decode[a-green] with parameters
    name = f"{name[:-1]}-{what}]" if name.endswith("]") else f"{name}[{what}]"
    assert function.parent is not None
    item: SubjectItem = kind.from_parent(function.parent, name=name, origin=function, **rest)
    if function.config.pluginmanager.hasplugin("xdist") and not any(
        function.iter_markers("xdist_group")
    ):
        # With --dist loadgroup one worker gets all items of a subject, and none waits for another.
        item.add_marker(pytest.mark.xdist_group(function.nodeid))
    return item


def unproved(item: pytest.Item) -> str:
    """Why a marked item is not a subject's: it did not come from a plain test function."""
    return (
        f"not a redgreen subject: {type(item).__name__} items cannot be; mark a test function or a"
        " method of a plain test class"
    )
