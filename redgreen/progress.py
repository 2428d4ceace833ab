"""Says on stderr what is going on while nothing else is to be seen."""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

_PATIENCE = 5.0  # seconds between lines where lines cannot be rewritten


class Progress:
    """Call it with a line. A terminal shows the latest; elsewhere a line now and then."""

    def __init__(self, stream: TextIO | None = None, *, quiet: bool = False) -> None:
        self._stream = stream or sys.stderr
        self._quiet = quiet
        self._tty = self._stream.isatty()
        self._shown = time.monotonic()  # short work says nothing
        self._open = False
        self.latest = ""

    def __call__(self, *words: object) -> None:
        self.latest = " ".join(map(str, words))
        if self._quiet:
            return
        if self._tty:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r\x1b[2K{self.latest[:width]}")
            self._stream.flush()
            self._open = True
        elif time.monotonic() - self._shown >= _PATIENCE:
            self._shown = time.monotonic()
            print(f"redgreen: {self.latest[:90]}", file=self._stream, flush=True)

    def close(self) -> None:
        """Take the line away; the report follows."""
        if self._open:
            self._stream.write("\r\x1b[2K")
            self._stream.flush()
            self._open = False
