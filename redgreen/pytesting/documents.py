"""The proofs of a session as JSON: a file of them all, or a folder with a file for each."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from ..jsonfile import JSONFile
from ..subject import UsageError

SCHEMA = 1


class Documents:
    """The path of --redgreen-json, known to be writable before the run."""

    def __init__(self, path: str) -> None:
        self._folder = Path(path) if path.endswith(os.sep) or Path(path).is_dir() else None
        try:
            if self._folder is not None:
                self._folder.mkdir(parents=True, exist_ok=True)
                JSONFile(str(self._folder / "probe.json"))
            else:
                self._file = JSONFile(path)
        except (OSError, UsageError) as error:
            reason = str(error).removeprefix(f"--json {path}: ").removeprefix("--json ")
            raise pytest.UsageError(f"--redgreen-json {path}: {reason}") from None

    def write(self, found: Sequence[dict[str, Any]]) -> str:
        """What was written, in words."""
        proofs = [one for one in found if one["kind"] == "done"]
        failures = [{name: one[name] for name in ("subject", "kind", "text")}
                    for one in found if one["kind"] != "done"]
        if self._folder is None:
            self._file.write({"schema": SCHEMA, "proofs": [one["result"] for one in proofs],
                              "failures": failures})
            return f"{len(proofs)} proof{'s' * (len(proofs) != 1)} in one file"
        for one in proofs:
            JSONFile(str(self._folder / f"{_slug(one['node'])}.json")).write(one["result"])
        if failures:
            JSONFile(str(self._folder / "failures.json")).write(
                {"schema": SCHEMA, "failures": failures})
        return f"{len(proofs)} file{'s' * (len(proofs) != 1)}"


def _slug(node: str) -> str:
    """A file name that still says which subject it is."""
    return re.sub(r"[^\w.\[\]-]+", "-", node)[:150]
