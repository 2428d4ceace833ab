"""Frees that would race if anything were allocated after them.

A freed block may be taken at once by the next allocation of its allocating stream (stream-ordered:
of whichever stream comes after the free, which has its place in that stream). That is safe if
every use of the block comes before whatever that stream does next, or before a marker that the
allocator waits for (``record_stream``). Otherwise the program is right only as long as nobody takes
the block: a latent use-after-free.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Set
from dataclasses import dataclass, replace

from .order import NOTHING, clocks, questions
from .races import analyse
from .trace import Kind, Trace


def without_reuse(trace: Trace) -> Trace | None:
    """The order that is left when the allocator never finds a marked block done (so that taking it
    orders nothing); None if it never asked. Conflicts between lifetimes mean nothing there.
    """
    asked = [s.index for s in trace.steps if s.kind is Kind.CHOICE and s.allocation >= 0]
    if not asked:
        return None
    steps = list(trace.steps)
    for index in asked:
        steps[index] = replace(steps[index], taken=False)
    return replace(trace, steps=steps)


Pool = tuple[bool, int]  # pinned or not, and the stream that takes blocks again (-1: any)


def pool_of(trace: Trace, allocation: int) -> Pool:
    where = trace.allocations[allocation]
    return where.pinned, -1 if trace.one_pool else where.stream


def reuse_matters(trace: Trace) -> Set[Pool]:
    """The pools in which the allocator's choices can change more than places. Not those whose every
    free is safe (whoever takes the block is ordered behind its last use), where nothing leans on
    the wait that a reuse implies. A choice in one pool says nothing about places in another.
    """
    bare = without_reuse(trace)
    if bare is None:
        return frozenset()
    asked = (s.allocation for s in trace.steps if s.kind is Kind.CHOICE and s.allocation >= 0)
    pools = {pool_of(trace, allocation) for allocation in asked}
    if analyse(trace).races or _leans_on_reuse(trace, bare):
        return pools
    return pools & {pool_of(trace, trace.steps[latent.free].allocation)
                    for latent in latent_frees(trace)}


def _leans_on_reuse(trace: Trace, bare: Trace) -> bool:
    """Does the wait that a reuse implies decide a conflict, or what another question finds?"""
    if any(race.hazard != "UAF" for race in analyse(bare).races):
        return True
    decided = [(index, done) for index, _, done in questions(trace)
               if trace.steps[index].allocation < 0]
    left = [(index, done) for index, _, done in questions(bare)
            if trace.steps[index].allocation < 0]
    return decided != left


@dataclass(frozen=True, slots=True)
class LatentFree:
    """A free, and the last use of the block that nothing orders before its reuse."""

    free: int  # step indices
    use: int


def latent_frees(trace: Trace, suppressed: Set[int] = NOTHING) -> list[LatentFree]:
    """All of a trace's, in issue order."""
    uses: defaultdict[int, dict[int, int]] = defaultdict(dict)  # lifetime -> agent -> last use
    markers: defaultdict[int, list[list[int]]] = defaultdict(list)
    latest: dict[int, list[int]] = {}  # each agent's clock; the lists are live
    found = []
    for step, clock in clocks(trace, suppressed):
        latest[step.agent] = clock
        for access in step.accesses:
            uses[access.lifetime][step.agent] = step.index
        if step.kind is Kind.PUBLISH and step.allocation >= 0:
            markers[step.allocation].append(clock.copy())
        if step.kind is Kind.FREE:
            known = markers.pop(step.allocation, [])
            taker = trace.allocations[step.allocation].stream
            known += [latest[agent] for agent in (step.agent, taker) if agent in latest]
            for agent, use in uses.pop(step.allocation, {}).items():
                if not any(clock[agent] > use for clock in known):
                    found.append(LatentFree(step.index, use))
    return found
