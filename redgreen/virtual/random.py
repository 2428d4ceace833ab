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
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .captures import Capture

DEFAULT_SEED = 67280421310721  # c10::detail::default_rng_seed_val


@dataclass(slots=True, eq=False)
class Counter:
    """State of one generator."""

    seed: int
    offset: int = 0


# Generators that programs made, by the address of the C++ object; an entry goes with its
# generator, because the next one, a CPU one too, may get the same address.
counters: dict[int, Counter] = {}


@dataclass(slots=True, eq=False)
class Tape:
    """A generator's part in a graph: each launch takes the offsets of all captured draws at once.

    CUDAGeneratorImpl: captured kernels read seed and offset from device memory, which a launch
    fills; the offsets of the capture are relative to it.
    """

    counter: Counter
    used: int = 0
    seed: int = 0
    offset: int = 0


@dataclass(frozen=True, slots=True)
class Draw:
    """What one operator draws from: a counter's state when it was enqueued."""

    state: Counter | Tape
    offset: int

    def number(self) -> int:
        state = self.state
        offset = self.offset + (state.offset if isinstance(state, Tape) else 0)
        text = f"{state.seed}:{offset}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")

    def generator(self) -> torch.Generator:
        made = torch._C.Generator()
        made.manual_seed(self.number())
        return made

    @contextmanager
    def as_default(self) -> Iterator[None]:
        """For operators without a generator argument (dropout): the default one, for a moment."""
        default = torch.default_generator
        state = default.get_state()
        default.manual_seed(self.number())
        try:
            yield
        finally:
            default.set_state(state)


class Random:
    """The device's default generator and the draws of others."""

    def __init__(self, at_enqueue: bool = True) -> None:
        self.default = Counter(DEFAULT_SEED)
        self.at_enqueue = at_enqueue  # rule switch 14

    def draw(self, generator: torch.Generator | None, capture: Capture | None) -> Draw:
        """Takes seed and offset now and moves the offset on."""
        counter = self.default if generator is None else counters.get(generator._cdata)  # type: ignore[attr-defined]
        if counter is None:
            raise RuntimeError("Expected a 'cuda' device type for generator but found 'cpu'")
        if capture is not None:
            tape = capture.tape(counter)
            tape.used += 4
            return Draw(tape, tape.used)
        counter.offset += 4
        return Draw(Counter(counter.seed) if self.at_enqueue else counter, counter.offset)
