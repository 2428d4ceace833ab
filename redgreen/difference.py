"""The first byte at which two outcomes differ, in words."""

from __future__ import annotations

from itertools import zip_longest

from .run import Leaf, Outcome


def first_difference(expected: Outcome, actual: Outcome) -> str:
    """Where ``actual`` first departs from ``expected``; "" if they are equal byte for byte."""
    if expected == actual:
        return ""
    if expected.status != actual.status:
        return f"it {_ending(actual)} where the other {_ending(expected)}"
    for left, right in zip_longest(expected.leaves, actual.leaves):
        if left != right:
            return _leaves(left, right)
    raise AssertionError("outcomes that differ have leaves that differ")


def _ending(outcome: Outcome) -> str:
    text = _text(outcome.leaves[0].data) if outcome.leaves else ""
    return {
        "returned": "returned",
        "raised": f"raised {text}",
        "died": f"died ({text})",
        "diverged": "never ended",
        "timeout": "ran out of time",
        "stuck": "got stuck",
    }[outcome.status]


def _leaves(left: Leaf | None, right: Leaf | None) -> str:
    if left is None or right is None:
        leaf = left or right
        assert leaf is not None
        return f"{_place(leaf)} is {'missing' if right is None else 'one more than expected'}"
    if left.form == right.form == "error":
        return f"it raised {_text(right.data)} instead of {_text(left.data)}"
    if (left.path, left.form) != (right.path, right.form):
        return f"{_place(right)} instead of {_place(left)}"
    if left.form in ("stdout", "str"):
        return f"{_place(right)}: {_text(right.data)!r} instead of {_text(left.data)!r}"
    pairs = zip(left.data, right.data, strict=False)
    at = next((i for i, (a, b) in enumerate(pairs) if a != b), None)
    if at is None:
        return f"{_place(right)}: {len(right.data)} bytes instead of {len(left.data)}"
    return f"{_place(right)}: byte {at} is {right.data[at]:02x} instead of {left.data[at]:02x}"


def _place(leaf: Leaf) -> str:
    if leaf.form == "stdout":
        return f"standard output, {leaf.path}"
    return f"output{leaf.path} ({leaf.form})"


def _text(data: bytes) -> str:
    text = data.decode("utf-8", "replace").rstrip("\n")
    return text if len(text) <= 120 else text[:117] + "..."
