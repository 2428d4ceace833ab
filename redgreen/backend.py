"""Which devices and allocators a proof can be asked for."""

from __future__ import annotations

from .subject import UsageError

DEVICES = ("virtual", "cuda")
# How the caching allocator of the virtual GPU reuses memory. Others are refused, not ignored: a
# proof under another policy than the one that was asked for would be a wrong answer.
ALLOCATORS = ("native",)


def check(device: str, allocator: str) -> None:
    """UsageError if there is no such device here, or no such allocator. Only ``cuda`` needs torch
    to be imported for the answer.
    """
    if device not in DEVICES:
        raise UsageError(f"device {device!r}: use one of {', '.join(DEVICES)}")
    if allocator not in ALLOCATORS:
        raise UsageError(f"allocator {allocator!r}: this version has {', '.join(ALLOCATORS)}")
    if device == "cuda":
        from .silicon.availability import why_not

        if reason := why_not():
            raise UsageError(f"device cuda: {reason}; use virtual")
