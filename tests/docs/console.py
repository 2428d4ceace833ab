"""Documents that are run: what the blocks mean, and how their commands are executed.

* ```` ```python title="name.py" ```` is a file; it is written to the document's folder.
* ```` ```console ```` is a terminal. A line that begins with ``$ `` is a command, a backslash at
  its end continues it, and what follows is its output, as printed. A line ``...`` in an output
  stands for any lines. Commands are ``redgreen``, ``pytest``, ``python FILE`` and ``echo $?``.
* Everything else is for reading.

A document's blocks run in order in one folder. Its path is as long as `SHOWN`, so that lines wrap
as the document has them.
"""

from __future__ import annotations

import os
import re
import runpy
import shlex
import shutil
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
SHOWN = "/home/you/engine"

_FENCE = re.compile(r"^(`{3,})(\S*)[ ]*(.*)$")
TOKEN = re.compile(r"rg1\.[\w=-]+(?:\\\n[\w=-]+)*")

Pytest = Callable[[list[str]], tuple[str, int]]


@dataclass(frozen=True, slots=True)
class Command:
    """One command of a terminal, and the output that the document shows."""

    line: int  # of the command, in the document
    text: str
    output: list[str]
    end: int  # the line after the output


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block; ``line`` is that of its first line of content."""

    language: str
    title: str
    line: int
    lines: list[str]

    @property
    def commands(self) -> list[Command]:
        found: list[Command] = []
        index = 0
        while index < len(self.lines):
            first = index
            assert self.lines[index].startswith("$ "), f"line {self.line + index} is no command"
            text = self.lines[index][2:]
            while text.endswith("\\"):
                index += 1
                text = text[:-1] + self.lines[index]
            index += 1
            start = index
            while index < len(self.lines) and not self.lines[index].startswith("$ "):
                index += 1
            found.append(Command(self.line + first, text, self.lines[start:index],
                                 self.line + index))  # fmt: skip
        return found


def blocks(text: str) -> Iterator[Block]:
    """The fenced blocks of a document."""
    lines = text.splitlines()
    index = 0
    while index < len(lines):
        fence = _FENCE.match(lines[index])
        index += 1
        if fence is None:
            continue
        start = index
        while lines[index] != fence[1]:
            index += 1
        title = re.match(r'title="(.*)"$', fence[3])
        yield Block(fence[2], title[1] if title else "", start + 1, lines[start:index])
        index += 1


@contextmanager
def folder() -> Iterator[Path]:
    """A folder whose path is as long as `SHOWN`."""
    path = Path(tempfile.mkdtemp(dir="/tmp"))
    try:
        assert len(str(path)) == len(SHOWN), path
        yield path
    finally:
        shutil.rmtree(path)


@dataclass(slots=True)
class Terminal:
    """Runs commands in a folder. ``pytest`` runs pytest there and returns output and status."""

    folder: Path
    pytest: Pytest
    status: int = 0

    def run(self, text: str) -> str:
        """What the command prints."""
        words = shlex.split(text)
        if words == ["echo", "$?"]:
            return f"{self.status}\n"
        if words[0] == "pytest":
            printed, self.status = self.pytest(words[1:])
        elif words[0] == "redgreen":
            printed, self.status = self._forked(lambda: _redgreen(words[1:]))
        elif words[0] == "python" and len(words) == 2:
            printed, self.status = self._forked(lambda: _python(words[1]))
        else:
            raise AssertionError(f"documents cannot run {words[0]}")
        return printed.replace(str(self.folder), SHOWN)

    def _forked(self, call: Callable[[], int]) -> tuple[str, int]:
        """``call`` in a child of this process, which has imported torch already."""
        with tempfile.TemporaryFile() as file:
            sys.stdout.flush()
            sys.stderr.flush()
            child = os.fork()
            if child == 0:
                os._exit(_alone(call, self.folder, file.fileno()))
            _, ended = os.waitpid(child, 0)
            file.seek(0)
            return file.read().decode(), os.waitstatus_to_exitcode(ended)


def warm_up() -> None:
    """What every child would do again: torch's lazy start, without a backward pass."""
    import torch

    from redgreen import api

    with api.installed():
        torch.zeros(2, device="cuda").add(1)


def _alone(call: Callable[[], int], place: Path, output: int) -> int:
    """In the child: its terminal is the file, its folder the document's."""
    try:
        os.chdir(place)
        os.dup2(output, 1)
        os.dup2(output, 2)
        sys.stdout = open(1, "w", closefd=False)  # noqa: SIM115 - as long as the child lives
        sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115
        status = call()
        sys.stdout.flush()
        return status
    except SystemExit as end:
        sys.stdout.flush()
        return end.code if isinstance(end.code, int) else 1
    except BaseException:
        traceback.print_exc()
        return 99


def _redgreen(arguments: Sequence[str]) -> int:
    from redgreen import cli

    quiet = ["--quiet"] if arguments[0] in ("prove", "replay") else []  # a terminal erases it
    return cli.main([*arguments, *quiet])


def _python(file: str) -> int:
    sys.argv = [file]
    sys.path[0] = os.getcwd()
    runpy.run_path(file, run_name="__main__")
    return 0


def normalised(text: str) -> list[str]:
    """Lines without what differs from run to run: tokens and durations."""
    text = TOKEN.sub("rg1.TOKEN", text)
    text = re.sub(r"\bin \d+\.\d\ds( \([\d:]+\))?", "in TIME", text)
    lines = [line.rstrip() for line in text.splitlines()]
    while lines and not lines[-1]:
        lines.pop()
    return lines


def agree(shown: list[str], printed: list[str]) -> bool:
    """Line by line; ``...`` in what is shown stands for any lines."""
    if "..." not in shown:
        return shown == printed
    at = shown.index("...")
    head, tail = shown[:at], shown[at + 1 :]
    if printed[:at] != head:
        return False
    return any(agree(tail, printed[start:]) for start in range(at, len(printed) + 1))


def unfolded(token: str) -> str:
    """A token that was folded over lines, as one word."""
    return token.replace("\\\n", "")
