from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from redgreen import api, cli
from redgreen.isolation import ForkedRunner
from tests.isolation.fake import FakeGPU


@dataclass(frozen=True)
class Result:
    """What a user of the command line sees."""

    status: int
    out: str
    err: str

    @property
    def line(self) -> str:
        """The one line of a usage error."""
        assert self.status == 2 and self.out == ""
        assert self.err.startswith("redgreen") and self.err.count("\n") == 1
        return self.err


Run = Callable[..., Result]


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def redgreen(here: Path, capfd: pytest.CaptureFixture[str]) -> Run:
    """Runs the command line in this process, in a directory of its own."""

    def run(*arguments: str) -> Result:
        capfd.readouterr()
        try:
            status = cli.main(arguments)
        except SystemExit as end:  # argparse
            assert isinstance(end.code, int)
            status = end.code
        out, err = capfd.readouterr()
        return Result(status, out, err)

    return run


@pytest.fixture
def fake_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(api, "ForkedRunner", functools.partial(ForkedRunner, gpu=FakeGPU))
