"""Model directories, written once per test process."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from tests.engine.corpus import CHECKPOINTS
from tests.engine.tiny import write_checkpoint


@pytest.fixture(scope="session")
def dense(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("models") / "dense", "dense")


@pytest.fixture(scope="session")
def moe(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_checkpoint(tmp_path_factory.mktemp("models") / "moe", "moe")


@pytest.fixture(params=["dense", "moe"])
def model(request: pytest.FixtureRequest) -> Path:
    directory: Path = request.getfixturevalue(request.param)
    return directory


@pytest.fixture(params=["dense", "moe"])
def trained(request: pytest.FixtureRequest) -> Path:
    """The committed checkpoint of a kind."""
    kind: str = request.param
    return CHECKPOINTS / kind


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Bytes are compared between runs; a reduction split over threads may round differently."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
