"""Which devices and allocators a proof can be asked for."""

from __future__ import annotations

import os
from collections.abc import Mapping

from .subject import UsageError

DEVICES = ("virtual", "cuda")

# How the virtual GPU hands out memory: torch's caching allocator, the same with expandable
# segments, and cudaMallocAsync. Others are refused, not ignored: a proof under another policy than
# the one that was asked for would be a wrong answer.
ALLOCATORS = ("native", "expandable", "stream-ordered")

# As torch calls them in PYTORCH_ALLOC_CONF.
ALIASES = {
    "backend:native": "native",
    "expandable_segments": "expandable",
    "expandable_segments:True": "expandable",
    "cudaMallocAsync": "stream-ordered",
    "backend:cudaMallocAsync": "stream-ordered",
}
VARIABLES = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")  # the first that is set counts


def check(device: str, allocator: str) -> None:
    """UsageError if there is no such device here, or no such allocator. Only ``cuda`` needs torch
    to be imported for the answer.
    """
    if device not in DEVICES:
        raise UsageError(f"device {device!r}: use one of {', '.join(DEVICES)}")
    if canonical(allocator) not in ALLOCATORS:
        raise UsageError(f"allocator {allocator!r}: use one of {', '.join(ALLOCATORS)}")
    if device == "cuda":
        if canonical(allocator) != from_environment()[0]:
            raise UsageError(f"allocator {allocator!r}: on a real GPU torch decides, by its "
                             f"environment variable {VARIABLES[0]}")
        from .silicon.availability import why_not

        if reason := why_not():
            raise UsageError(f"device cuda: {reason}; use virtual")


def check_mutants(device: str, asked: object) -> None:
    """UsageError if mutants are asked for (not None) on a device that knows none of them."""
    if device == "cuda" and asked is not None:
        raise UsageError("mutants: they are made on the virtual GPU only; use --device virtual")


def canonical(allocator: str) -> str:
    """Our name of it, where torch has another."""
    return ALIASES.get(allocator, allocator)


def chosen(allocator: str | None) -> str:
    """What was asked for, else what the environment tells torch to use."""
    return canonical(allocator) if allocator is not None else from_environment()[0]


def from_environment(environment: Mapping[str, str] = os.environ) -> tuple[str, str]:
    """The allocator that the program has on a GPU, and the variable that says so, if one does."""
    for variable in VARIABLES:
        if variable in environment:
            settings = environment[variable].replace(" ", "").split(",")
            for policy in ("stream-ordered", "expandable"):  # with the former the latter is unused
                if any(":" in one and ALIASES.get(one) == policy for one in settings):
                    return policy, variable
            break
    return "native", ""
