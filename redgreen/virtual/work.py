"""A step on its way to the trace, and the gate that holds a stream's."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Protocol

from ..trace import Access, Kind


class Work:
    """One step, from its issue to the trace. Device work is `done` once it has executed."""

    __slots__ = (
        "accesses", "after", "agent", "allocation", "current", "done", "edges", "index", "issuer",
        "key", "kind", "label", "late", "launch", "op", "run", "site", "taken", "targets",
    )  # fmt: skip

    def __init__(
        self,
        agent: int,
        issuer: int,
        kind: Kind,
        op: str,
        site: int,
        run: Callable[[Work], object] | None = None,
        accesses: tuple[Access, ...] = (),
        key: Hashable = None,
        after: Work | None = None,
        edges: tuple[int, ...] = (),
    ) -> None:
        self.agent, self.issuer, self.kind, self.op, self.site = agent, issuer, kind, op, site
        self.run, self.accesses, self.key, self.after = run, accesses, key, after
        self.edges = edges
        self.targets: tuple[int, ...] = ()
        self.index = -1
        self.label = ""
        self.done = False
        self.taken = False
        self.late = False  # waits until it is waited for
        self.allocation = self.current = -1
        self.launch = 0


class Parted(Protocol):
    """Work that executes in two parts."""

    def begin(self, work: Work) -> None: ...

    def rest(self, work: Work) -> None: ...


class Gate:
    """Closed: what is issued to ``agent`` from step ``start`` on does not execute."""

    __slots__ = ("agent", "broken", "start")

    def __init__(self, agent: int, start: int) -> None:
        self.agent, self.start = agent, start
        self.broken = False  # a host sync needed the work: on hardware this is a deadlock
