"""JSON files that several processes share: whoever is first makes one, the others read it."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Store:
    """A folder, with a file per key."""

    folder: Path

    def path(self, *key: object) -> Path:
        return self.folder / f"{hashlib.sha256(repr(key).encode()).hexdigest()[:24]}.json"

    def read(self, *key: object) -> Any:
        """The value, None if there is none that can be read."""
        try:
            return json.loads(self.path(*key).read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None

    def write(self, value: object, *key: object) -> None:
        """Put it there at once, so that a reader sees all of it or nothing."""
        self.folder.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=self.folder)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as file:
                json.dump(value, file)
            os.replace(name, self.path(*key))
        except BaseException:
            with contextlib.suppress(OSError):
                os.unlink(name)
            raise

    def once(self, make: Callable[[], object], *key: object) -> Any:
        """The value; made if there is none, while other processes that want it wait."""
        with self._lock(*key):
            value = self.read(*key)
            if value is None:
                self.write(make(), *key)
                value = self.read(*key)
            return value

    def all(self) -> list[Any]:
        """Every value, in the order in which they were made."""
        files = sorted(self.folder.glob("*.json"), key=lambda path: path.stat().st_mtime_ns)
        return [json.loads(file.read_text(encoding="utf-8")) for file in files]

    @contextlib.contextmanager
    def _lock(self, *key: object) -> Iterator[None]:
        self.folder.mkdir(parents=True, exist_ok=True)
        with self.path(*key).with_suffix(".lock").open("w") as file:
            fcntl.flock(file, fcntl.LOCK_EX)  # ends with the process at the latest
            yield
