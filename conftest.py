"""Options of redgreen's own tests, and a line about what a run left out."""

from __future__ import annotations

import os
from collections import Counter

import pytest

pytest_plugins = ["pytester"]

# Before torch is imported: a process that has used several threads in a kernel forks children that
# may wait for them for ever.
os.environ.setdefault("OMP_NUM_THREADS", "1")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--slow", action="store_true", help="also run the tests marked slow")


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "slow: takes minutes; skipped without --slow")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        if item.get_closest_marker("slow") and not config.getoption("slow"):
            item.add_marker(pytest.mark.skip("slow: use --slow"))
        elif item.get_closest_marker("cuda") and (reason := _why_no_cuda()):
            item.add_marker(pytest.mark.skip(f"cuda: {reason}"))


def _why_no_cuda() -> str | None:
    from tests.conformance import device  # torch, which most runs import anyway

    device.prepare_environment()
    return device.why_no_cuda()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Nothing is left out in silence."""
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = Counter(str(report.longrepr[2]).removeprefix("Skipped: ") for report in skipped
                      if isinstance(report.longrepr, tuple))  # fmt: skip
    for reason, number in reasons.most_common():
        terminalreporter.write_line(f"left out: {number} tests, {reason}")
