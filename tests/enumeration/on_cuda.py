"""``python -m tests.enumeration.on_cuda PROGRAMS [ROUNDS]``: random programs on a real GPU.

Whatever a device returns must be one of the enumerator's outcomes. Every round delays other kernels
and copies, by a kernel that spins in front of them, so that the device takes other orders.
"""

from __future__ import annotations

import os
import random
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import torch

from redgreen.leaves import flatten

from .enumerate import GARBAGE, Outcome, TooLarge, outcomes, shown
from .generate import generate
from .program import Program
from .prove import values
from .render import render

DELAYS = (0, 0, 20_000, 200_000, 1_000_000)  # cycles of the device: up to half a millisecond
ROUNDS = 20


@dataclass(frozen=True, slots=True)
class Found:
    """What a device made of one program."""

    seed: int
    possible: frozenset[Outcome]
    seen: frozenset[Outcome]

    @property
    def outside(self) -> list[Outcome]:
        """What was seen and cannot be."""
        return [each for each in self.seen if not any(_fits(each, o) for o in self.possible)]


def _fits(outcome: Outcome, possible: Outcome) -> bool:
    """Fresh memory of a real device holds anything."""
    return len(outcome) == len(possible) and all(
        len(row) == len(other) and all(w in (v, GARBAGE) for v, w in zip(row, other, strict=True))
        for row, other in zip(outcome, possible, strict=True)
    )


def delayed(text: str) -> str:
    """The source of a program, with a call of ``delay`` in front of what a stream gets."""
    lines = []
    for line in text.splitlines():
        lines.append(line)
        if line.lstrip().startswith("with torch.cuda.stream("):
            lines.append(f"{line[: len(line) - len(line.lstrip())]}    delay()")
    return "\n".join(lines) + "\n"


def compiled(program: Program, delay: Callable[[], None]) -> Callable[[], object]:
    names: dict[str, Callable[[], object]] = {"delay": delay}
    exec(compile(delayed(render(program).text), "<program>", "exec"), names)
    return names["program"]


def seen(program: Program, rounds: int, seed: int) -> Iterator[Outcome]:
    """The outcome of each round, on whatever device torch.cuda is."""
    draw = random.Random(seed)

    def delay() -> None:
        cycles = draw.choice(DELAYS)
        if cycles:
            torch.cuda._sleep(cycles)

    function = compiled(program, delay)
    for _ in range(rounds):
        torch.cuda.empty_cache()  # the device is idle, and no block is left of other programs
        yield shown(values(program, flatten(function())))


def examine(seed: int, rounds: int) -> Found:
    """Raises TooLarge before the device is asked."""
    program = generate(seed)
    possible = frozenset(map(shown, outcomes(program)))
    return Found(seed, possible, frozenset(seen(program, rounds, seed)))


def main() -> int:
    from tests.conformance import device

    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")  # before anything asks for the device
    device.prepare_environment()
    reason = device.why_no_cuda()
    if reason:
        print(f"no real GPU: {reason}")
        return 2
    programs = int(sys.argv[1])
    rounds = int(sys.argv[2]) if len(sys.argv) > 2 else ROUNDS
    begin, large, several, outside = time.monotonic(), 0, 0, []
    for seed in range(programs):
        try:
            found = examine(seed, rounds)
        except TooLarge:
            large += 1
            continue
        several += len(found.seen) > 1
        if found.outside:
            outside.append(seed)
            print(f"seed {seed}: {found.outside} not in {sorted(found.possible)}", flush=True)
    print(f"{programs} programs, {large} too large to enumerate, {rounds} rounds each: "
          f"{several} had several outcomes, {len(outside)} an impossible one {outside[:20]}; "
          f"{time.monotonic() - begin:.0f} s on {torch.cuda.get_device_name()}")
    return 1 if outside else 0


if __name__ == "__main__":
    sys.exit(main())
