"""A test suite that does not use redgreen, with the plugin loaded and without."""

from __future__ import annotations

import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS = 15
TESTS = """import pytest
@pytest.mark.parametrize("i", range(300))
def test(i):
    assert i >= 0
"""


def seconds(folder: str, *options: str) -> float:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, folder]
    start = time.perf_counter()
    subprocess.run(command, check=True, capture_output=True, cwd=folder)
    return time.perf_counter() - start


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "test_plain.py").write_text(TESTS)
        ways: dict[str, tuple[str, ...]] = {"with": (), "without": ("-p", "no:redgreen")}
        for options in ways.values():
            seconds(folder, *options)
        rows = [[seconds(folder, *o) for o in ways.values()] for _ in range(ROUNDS)]
    loaded, bare = (statistics.median(column) for column in zip(*rows, strict=True))
    ratios = sorted(a / b for a, b in rows)
    print(f"300 tests, {ROUNDS} rounds")
    print(f"with the plugin     {loaded:6.3f} s")
    print(f"without             {bare:6.3f} s")
    print(f"ratio               {statistics.median(ratios):6.2f}")
    print(f"quartiles           {ratios[ROUNDS // 4]:6.2f} {ratios[3 * ROUNDS // 4]:6.2f}")


if __name__ == "__main__":
    main()
