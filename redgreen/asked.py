"""Mutants and rings as a person asks for them, in text."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import PurePath

from .faults import Action
from .mutants import OPERATORS, Ring
from .subject import UsageError


def operators(names: str) -> tuple[Action, ...]:
    """The operators of these names ("all", or several with commas), in their own order."""
    wanted = {name.strip() for name in names.split(",")}
    unknown = sorted(wanted - {*OPERATORS, "all"})
    if unknown:
        raise UsageError(f"no mutant {unknown[0]!r}; there are {', '.join(OPERATORS)}, all")
    return tuple(name for name in OPERATORS if name in wanted or "all" in wanted)


def ring(text: str) -> Ring:
    """From ``file.py:12``."""
    file, _, line = text.rpartition(":")
    if not file or not line.isdecimal():
        raise UsageError(f"ring {text!r}: name the line of its allocations, file.py:12")
    return Ring(str(PurePath(file)), int(line))


def asked(
    mutants: str | Iterable[str] | None, rings: str | Iterable[str] | None
) -> tuple[tuple[Action, ...] | None, tuple[Ring, ...]]:
    """What a proof was asked for: operators (None: no mutants), and rings, which imply collapse."""
    names, texts = ([given] if isinstance(given, str) else list(given or ())
                    for given in (mutants, rings))
    places = tuple(ring(text) for text in texts)
    if not names and not places:
        return None, ()
    wanted = operators(",".join([*names, "collapse"] if places else names))
    if wanted == ("collapse",) and not places:
        raise UsageError("collapse: name the lines that allocate the buffers, --ring FILE:LINE")
    return wanted, places
