"""Random numbers of the device: seed and offset are taken when an operator is enqueued.

CUDA's generators are counters (Philox): an operator takes its offset at launch, so the order of
execution cannot change what it draws. Here every draw gets a CPU generator of its own, seeded from
(seed, offset); the numbers differ from a real GPU's, their independence of the schedule does not.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import torch


@dataclass(slots=True)
class Counter:
    """State of one generator."""

    seed: int
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Draw:
    """What one operator draws from."""

    seed: int

    def generator(self) -> torch.Generator:
        made = torch._C.Generator()
        made.manual_seed(self.seed)
        return made

    @contextmanager
    def as_default(self) -> Iterator[None]:
        """For operators without a generator argument (dropout): the default one, for a moment."""
        default = torch.default_generator
        state = default.get_state()
        default.manual_seed(self.seed)
        try:
            yield
        finally:
            default.set_state(state)


class Random:
    """The device's default generator and the draws of others."""

    def __init__(self) -> None:
        self.default = Counter(67280421310721)  # c10::detail::default_rng_seed_val
        self.counters: dict[int, Counter] = {}
        self.at_enqueue = True  # rule switch

    def draw(self, generator: torch.Generator | None) -> Draw:
        """Takes (seed, offset) now and moves the offset on."""
        counter = getattr(generator, "counter", None) or self.default
        counter.offset += 4
        text = f"{counter.seed}:{counter.offset}".encode()
        return Draw(int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little"))
