"""The same programs for the fake device, where device memory is called meta."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

PROGRAMS = Path(__file__).with_name("programs.py")
NAMES = ("poisoned_source", "dropped_wait", "graph_input", "early_read", "no_record_stream")
ALL = tuple(name + variant for name in NAMES for variant in ("", "_fixed"))


def for_fake(name: str, path: Path = PROGRAMS) -> Callable[[], Any]:
    names: dict[str, Any] = {"__name__": "programs"}
    source = path.read_text().replace('"cuda"', '"meta"')
    exec(compile(source, str(path), "exec"), names)
    program: Callable[[], Any] = names[name]
    return program
