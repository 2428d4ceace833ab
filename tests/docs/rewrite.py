"""Puts the output of today into the documents: python -m tests.docs.rewrite docs/tutorial.md ...

Only outputs that no longer agree are changed, and tokens in later commands with them. An output
with an ellipsis is printed instead: it has to be shortened by hand. Read the difference before you
commit it: it is what users will see.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.docs.console import TOKEN, Terminal, agree, blocks, folder, normalised, unfolded, warm_up


def rewrite(page: Path) -> None:
    """Run the document and put what is printed in the place of what it shows."""
    text = page.read_text()
    lines = text.splitlines()
    grown = 0
    tokens: dict[str, str] = {}  # what the document has -> what is printed, folded as they are
    with folder() as place:
        terminal = Terminal(place, lambda arguments: _pytest(place, arguments))
        for block in blocks(text):
            if block.title:
                (place / block.title).write_text("\n".join(block.lines) + "\n")
            for command in block.commands if block.language == "console" else []:
                printed = terminal.run(_current(command.text, tokens)).rstrip("\n")
                shown = "\n".join(command.output)
                found = TOKEN.findall(shown), TOKEN.findall(printed)
                if agree(normalised(shown), normalised(printed)) and found[0] == found[1]:
                    continue
                if "..." in command.output:
                    print(f"{page}:{command.line}: by hand: $ {command.text}\n{printed}\n")
                    continue
                tokens.update(zip(*found, strict=False))
                new = printed.splitlines()
                end = command.end - 1 + grown
                lines[end - len(command.output) : end] = new
                grown += len(new) - len(command.output)
    text = "\n".join(lines) + "\n"
    for old, new_token in tokens.items():
        text = text.replace(old, new_token)
    page.write_text(text)


def _current(command: str, tokens: dict[str, str]) -> str:
    """The command with the tokens of today."""
    for old, new in tokens.items():
        command = command.replace(unfolded(old), unfolded(new))
    return command


def _pytest(place: Path, arguments: list[str]) -> tuple[str, int]:
    environment = {**os.environ, "COLUMNS": "80", "PYTHONDONTWRITEBYTECODE": "1"}
    ended = subprocess.run([sys.executable, "-m", "pytest", *arguments], cwd=place,
                           capture_output=True, text=True, env=environment)  # fmt: skip
    return ended.stdout + ended.stderr, ended.returncode


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # tokens say which; the command line fixes it
        environment = {**os.environ, "PYTHONHASHSEED": "0"}
        os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
    warm_up()
    for name in sys.argv[1:]:
        rewrite(Path(name))
