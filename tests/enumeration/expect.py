"""The verdicts that a program must get, from the sets of its outcomes."""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import combinations

from .enumerate import Outcome, outcomes
from .program import Program, edges

Sites = frozenset[int]


@dataclass(slots=True)
class Expected:
    """Outcomes and verdicts of one program. ``whole``: kernels never overlap.

    ``unreached``: sites that the program as written never gets to, such as a second
    ``if not e.query(): e.synchronize()``. They have no verdict and mask nothing.
    """

    program: Program
    whole: bool = False
    allocator: str = "native"
    unreached: Sites = frozenset()
    known: dict[Sites, frozenset[Outcome]] = field(default_factory=dict)

    def outcomes(self, dropped: Sites = frozenset()) -> frozenset[Outcome]:
        if dropped not in self.known:
            self.known[dropped] = outcomes(
                self.program, dropped, self.whole, allocator=self.allocator)
        return self.known[dropped]

    def green(self) -> str:
        return "proved" if len(self.outcomes()) == 1 else "refuted"

    def changed(self, dropped: Sites) -> bool:
        return self.outcomes(dropped) != self.outcomes()

    def masks(self) -> list[Sites]:
        """The minimal sets of sites, each dead alone, whose joint suppression changes something."""
        dead = [site for site in self.sites() if not self.changed(frozenset((site,)))]
        found: list[Sites] = []
        for size in range(2, len(dead) + 1):
            for sites in map(frozenset, combinations(dead, size)):
                if not any(mask <= sites for mask in found) and self.changed(sites):
                    found.append(sites)
        return found

    def edges(self) -> dict[int, str]:
        masked = frozenset().union(*self.masks())
        return {site: "load-bearing" if self.changed(frozenset((site,)))
                else "masked" if site in masked else "redundant"
                for site in self.sites()}

    def sites(self) -> list[int]:
        return [site for site in edges(self.program) if site not in self.unreached]
