"""One run of pytest: its recordings and proofs, shared by all of its processes.

Recordings outlive the session, in pytest's cache: they only say which items there are, and are
valid as long as the files and versions that they depend on. Verdicts do not: a pass is always of
this session, because a subject may also read what no key knows (data files, the environment).
"""

from __future__ import annotations

import contextlib
import hashlib
import platform
import shutil
import sys
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import pytest

from .case import Case, digest
from .options import SESSION, Settings, command_line, read
from .store import Store
from .work import NOTHING, Answer, Request

WORKER_INPUT = "redgreen_folder"


@dataclass(frozen=True, slots=True)
class Recording:
    """Which edges a subject has, or why that is not known."""

    edges: tuple[Mapping[str, Any], ...]  # id, file, line
    problem: Answer | None
    cached: bool  # made by an earlier session


@dataclass(slots=True)
class Session:
    """What the items of one pytest process share, and through ``folder`` those of all workers."""

    settings: Settings
    override: Mapping[str, Any]  # the command line's part of the settings
    refresh: bool
    replay: str | None
    cache: Store | None
    folder: Path
    owner: bool  # made the folder
    with_edges: set[str] = field(default_factory=set)  # node ids of subjects with a RED item chosen

    def settings_for(self, mark: Mapping[str, Any]) -> Settings:
        return self.settings.updated({**mark, **self.override})

    def recording(self, node: str, case: Case, settings: Settings) -> Recording:
        """From this session, or the cache, or made now."""
        key = node, settings.device, settings.allocator
        found = Store(self.folder / "recordings").once(
            lambda: self._record(key, case, settings), *key)
        problem = None if found["kind"] == "done" else Answer(
            found["kind"], found["text"], found["result"])
        edges = tuple(found["result"].get("edges", ()))
        return Recording(edges, problem, found["cached"])

    def _record(self, key: tuple[str, ...], case: Case, settings: Settings) -> dict[str, Any]:
        known = None if self.cache is None or self.refresh else self.cache.read(*key)
        if known is not None and _is_current(known):
            return {**known, "cached": True}
        answer = _ask(Request("record", case, settings))
        made = {**answer.to_dict(), "versions": versions(), "cached": False}
        if self.cache is not None and answer.kind == "done":
            with contextlib.suppress(OSError):  # a read-only checkout
                self.cache.write(made, *key)
        return made

    def proof(self, node: str, case: Case, settings: Settings) -> Answer:
        """The proof that all items of a subject share; without edges if no RED item is chosen."""
        if node not in self.with_edges:
            settings = settings.updated({"edges": NOTHING})
        request = Request("prove", case, settings)
        found = Store(self.folder / "proofs").once(
            lambda: {"node": node, "subject": case.name, **_ask(request).to_dict()}, node, settings)
        return Answer(found["kind"], found["text"], found["result"])

    def failed(self, node: str, kind: str, text: str) -> None:
        """There will be no proof of this subject, and why: for the JSON."""
        one = {"node": node, "subject": node, "kind": kind, "text": text, "result": {}}
        Store(self.folder / "proofs").once(lambda: one, node, kind)

    def proofs(self) -> list[dict[str, Any]]:
        """Those of all processes so far."""
        return Store(self.folder / "proofs").all()

    def end(self) -> None:
        if self.owner:
            shutil.rmtree(self.folder, ignore_errors=True)

    def again(self, case: Case, settings: Settings, token: str, hash_seed: str) -> Answer:
        return _ask(Request("replay", case, settings, token), hash_seed)


def of(config: pytest.Config) -> Session:
    """The session, begun when first asked for."""
    if SESSION not in config.stash:
        config.stash[SESSION] = _begin(config)
    session: Session = config.stash[SESSION]
    return session


def _begin(config: pytest.Config) -> Session:
    shared = getattr(config, "workerinput", {}).get(WORKER_INPUT)
    # Elsewhere, on another machine, a worker keeps to itself.
    mine = shared is None or not Path(shared).is_dir()
    folder = Path(shared if shared and not mine else tempfile.mkdtemp(prefix="redgreen-"))
    store = getattr(config, "cache", None)  # absent with -p no:cacheprovider
    return Session(
        read(config), command_line(config), config.getoption("redgreen_refresh"),
        config.getoption("redgreen_replay"),
        None if store is None else Store(Path(store.mkdir("redgreen"))), folder, mine,
    )  # fmt: skip


def _ask(request: Request, hash_seed: str | None = None) -> Answer:
    from .prover import ask

    return ask(request, hash_seed)


def _is_current(recording: Mapping[str, Any]) -> bool:
    if recording.get("versions") != versions():
        return False
    try:
        return all(digest(file) == known for file, known in recording["result"]["sources"].items())
    except OSError:
        return False


@cache
def versions() -> dict[str, str]:
    """What decides what a subject does, besides its own files."""
    return {
        "python": sys.version, "machine": platform.machine(), "redgreen": _own_digest(),
        **{name: _version(name) for name in ("pytest-redgreen", "torch", "numpy", "pytest")},
    }  # fmt: skip


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _own_digest() -> str:
    """A checkout of redgreen changes without a new version."""
    total = hashlib.sha256()
    for file in sorted(Path(__file__).parent.parent.rglob("*.py")):
        total.update(file.read_bytes())
    return total.hexdigest()
