"""Lines that fit a terminal: wrapping, colour, escaping."""

from __future__ import annotations

import textwrap

WIDTH = 100

_COLOURS = {"red": "31", "green": "32", "yellow": "33", "bold": "1", "dim": "2"}


class Style:
    """Colour where it is wanted; the text is the same without."""

    def __init__(self, colour: bool) -> None:
        self._colour = colour

    def __call__(self, text: str, name: str) -> str:
        return f"\x1b[{_COLOURS[name]}m{text}\x1b[0m" if self._colour and name else text


def clean(text: object) -> str:
    """One line without control characters: source code and messages come from anywhere."""
    words = " ".join(str(text).split())
    return "".join(c if c.isprintable() else "?" for c in words)


def cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


def wrapped(label: str, text: object, indent: int) -> list[str]:
    """``label text`` folded to the width; nothing of the text is lost."""
    first = " " * indent + label
    body = clean(text)
    return textwrap.wrap(
        body, WIDTH, initial_indent=first, subsequent_indent=" " * (indent + 2),
        break_on_hyphens=False,
    ) or [first.rstrip()]


def paragraph(text: object, indent: int) -> list[str]:
    """Several lines (stacks, tracebacks), each folded to the width with its own indentation."""
    lines = []
    for line in str(text).splitlines():
        depth = indent + len(line) - len(line.lstrip())
        lines += wrapped("", line, min(depth, WIDTH // 2))
    return lines


def folded(token: str) -> list[str]:
    """A long word over lines that a shell joins again when they are pasted."""
    size = WIDTH - 2
    pieces = [token[i : i + size] for i in range(0, len(token), size)]
    return [piece + "\\" for piece in pieces[:-1]] + pieces[-1:]


def count(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"
