"""Torch has one thread here before anything forks: a child of one with more can wait for ever."""

from __future__ import annotations

import pytest

from tests.child import preload


@pytest.fixture(scope="session", autouse=True)
def _one_thread() -> None:
    preload()
