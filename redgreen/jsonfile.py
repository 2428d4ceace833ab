"""A JSON file that is known to be writable before the work, and written at once after it."""

from __future__ import annotations

import contextlib
import json
import os
import tempfile
from pathlib import Path
from typing import Any

from .subject import UsageError


class JSONFile:
    """``path``, checked now and left as it is until `write`."""

    def __init__(self, path: str) -> None:
        self._path = Path(path)
        # Devices and pipes cannot be replaced, only written to. /dev/stdout may lead to a file.
        self._special = self._path.exists() and (
            not self._path.is_file() or path.startswith(("/dev/", "/proc/"))
        )
        try:
            if not path:
                raise FileNotFoundError(None, "names no file")
            if self._path.is_dir():
                raise IsADirectoryError(None, "is a directory")
            if self._path.exists() and not os.access(self._path, os.W_OK):
                raise PermissionError(None, "permission denied")
            if not self._special:
                self._path = Path(os.path.realpath(self._path))  # a link stays a link
                with tempfile.TemporaryFile(dir=self._path.parent):
                    pass
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise UsageError(f"--json {path}: cannot be written: {reason}") from None

    def write(self, value: Any) -> None:
        """Write ``value`` completely or not at all."""
        text = json.dumps(value, indent=2) + "\n"
        if self._special:
            with self._path.open("a", encoding="utf-8") as stream:
                stream.write(text)
            return
        handle, name = tempfile.mkstemp(dir=self._path.parent, prefix=f".{self._path.name}.")
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                file.write(text)
            os.chmod(name, self._mode())
            try:
                os.replace(name, self._path)
            except OSError:  # a mount point cannot be replaced, only written to
                self._path.write_text(text, encoding="utf-8")
        finally:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(name)

    def _mode(self) -> int:
        """The permissions that ``open`` would have given; mkstemp gives 0600."""
        if self._path.exists():
            return self._path.stat().st_mode & 0o777
        mask = os.umask(0)
        os.umask(mask)
        return 0o666 & ~mask
