"""What a run's agents did, as it is written down: call sites, labels, works in issue order.

A `Work` is in the list from its issue on; what is known of it then is completed until it is done.
At the end the list becomes the steps of the trace.
"""

from __future__ import annotations

from collections.abc import Callable

from ..faults import Fault
from ..trace import Agent, Allocation, EdgeSite, Kind, Note, Step, Trace
from .sites import SiteTable
from .work import Work


class Journal:
    """Agents, sync call sites with their faults, and everything that was issued."""

    def __init__(self, faults: frozenset[Fault]) -> None:
        self.sites = SiteTable()
        self.trace = Trace(sites=self.sites.sites)
        self.works: list[Work] = []
        self.execution: list[int] = []
        self.hits: dict[Fault, int] = dict.fromkeys(faults, 0)
        self.changed: dict[Fault, int] = {}
        self._dropped = {f.edge: f for f in faults if f.action in ("drop", "cut")}
        self._poisoned = {f.edge: f for f in faults if f.action == "poison"}
        self._edge_ids: dict[tuple[str, int], int] = {}
        self._edge_sites: list[int] = []
        self._host_ids: dict[int, int] = {}
        self._labels: dict[str, int] = {}
        self.thread_key: Callable[[], int] = lambda: 0  # who is running; 0 is the main thread
        self.thread_names: dict[int, str] = {}

    # -- agents and edges ------------------------------------------------------------------------

    def _stream(self, name: str) -> int:
        agent = len(self.trace.agents)
        self.trace.agents.append(Agent(agent, name, False))
        return agent

    def host(self) -> int:
        """The agent of the calling host thread."""
        return self._agent_of(self.thread_key())

    def knows(self, thread: int) -> bool:
        """Has this host thread made a step?"""
        return thread in self._host_ids

    def _agent_of(self, thread: int) -> int:
        agent = self._host_ids.get(thread)
        if agent is None:
            agent = self._host_ids[thread] = len(self.trace.agents)
            name = self.thread_names.get(thread) if len(self._host_ids) > 1 else "host"
            self.trace.agents.append(Agent(agent, name or f"host thread {thread}", True))
        return agent

    def edge(self, kind: str, captured: bool = False) -> tuple[int, bool]:
        """The sync call site that is being called, and whether a fault takes the call out.

        A call that is ``captured`` becomes part of a graph in any case, if it is merely cut.
        """
        site = self.sites.edge()
        index = self._edge_ids.get((kind, site))
        if index is None:
            index = self._edge_ids[kind, site] = len(self.trace.edges)
            self._edge_sites.append(site)
            self.trace.edges.append(EdgeSite(kind, self.sites.sites[site]))
        fault = self._dropped.get(self.trace.edges[index]) if self._dropped else None
        if fault is None:
            return index, False
        self.hits[fault] += 1
        return index, not (captured and fault.action == "cut")

    def cut(self, edges: tuple[int, ...]) -> bool:
        """Whether a fault cuts what these calls captured."""
        return bool(self._dropped) and any(self.trace.edges[e] in self._dropped for e in edges)

    def poison(self, edge: int) -> Fault | None:
        """The poison fault of this copy site, if there is one; counts the hit."""
        fault = self._poisoned.get(self.trace.edges[edge]) if self._poisoned else None
        if fault is not None:
            self.hits[fault] += 1
        return fault

    def trace_site(self, edge: int) -> int:
        """The site index of an edge."""
        return self._edge_sites[edge]

    # -- what is written -------------------------------------------------------------------------

    def note(self, kind: str, site: int, message: str) -> None:
        self.trace.notes.append(Note(kind, site, message))

    def allocation(
        self, memory: int, start: int, size: int, pinned: bool, site: int, stream: int
    ) -> int:
        index = len(self.trace.allocations)
        self.trace.allocations.append(
            Allocation(index, memory, start, size, pinned, site, stream)
        )
        return index

    def issued(self, agent: int) -> bool:
        """Was anything ever issued to this agent?"""
        return any(w.agent == agent for w in reversed(self.works))

    def _label(self, work: Work) -> None:
        prefix = self._prefix(work)
        count = self._labels.get(prefix, 0) + 1
        self._labels[prefix] = count
        work.label = f"{prefix}#{count}"

    def _prefix(self, work: Work) -> str:
        function = self.sites.sites[work.site].function
        thread = "" if work.issuer == 0 else f"@{self.trace.agents[work.issuer].name}"
        return f"{function}:{work.op}{thread}"

    def _steps(self) -> Trace:
        """The trace, when nothing more will be issued."""
        self._drop_unheard()
        self._labels = {}
        for work in self.works:
            self._label(work)
        trace = self.trace
        trace.steps = [
            Step(
                w.index, w.agent, w.issuer, w.kind, w.op, w.site, w.label, w.accesses, w.key,
                w.targets, w.edges, w.taken, w.allocation, w.launch, w.current,
            )
            for w in self.works
        ]  # fmt: skip
        trace.execution = self.execution
        return trace

    def _drop_unheard(self) -> None:
        """What a host thread let go and nobody took says nothing, and may hang on real time."""
        heard = {w.key for w in self.works if w.kind is Kind.ACQUIRE}
        kept = [w for w in self.works if w.op != "thread release" or w.key in heard]
        if len(kept) == len(self.works):
            return
        place = {w.index: i for i, w in enumerate(kept)}
        self.execution = [place[i] for i in self.execution if i in place]
        for i, work in enumerate(kept):
            work.index = i
        self.works = kept
