"""The process in which subjects are proved: imports torch once, then a forked child per request."""

from __future__ import annotations

import contextlib
import ctypes
import os
import pickle
import signal
import sys
from dataclasses import dataclass
from multiprocessing.connection import Connection

from ..process import forked
from .work import Answer, Request, answer

_PR_SET_PDEATHSIG = 1


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request is worked on: the asking process's, as it is at that time."""

    directory: str
    path: list[str]
    environment: dict[str, str]

    @classmethod
    def here(cls) -> Place:
        return cls(os.getcwd(), list(sys.path), dict(os.environ))

    def enter(self) -> None:
        seed = os.environ["PYTHONHASHSEED"]
        os.chdir(self.directory)
        sys.path[:] = self.path
        os.environ.clear()
        os.environ.update(self.environment, PYTHONHASHSEED=seed)


def serve(descriptor: int) -> None:
    """Answer what comes over the socket until the other end is closed."""
    with contextlib.suppress(AttributeError):  # not Linux: it ends after the current request
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    with Connection(descriptor) as connection:
        _warm_up()
        while True:
            try:
                request = connection.recv_bytes()
            except EOFError:
                return
            connection.send_bytes(_answered(request))


def _answered(pickled: bytes) -> bytes:
    """In a child, so that a subject that a run's parent has to import leaves nothing behind."""
    ended = forked(lambda: _in_child(pickled), float("inf"))
    if ended.payload is not None:
        return ended.payload
    said = (ended.stdout + ended.stderr).decode("utf-8", "replace")
    return pickle.dumps(Answer("internal", f"the prover died: {ended.cause}\n{ended.stacks}{said}"))


def _in_child(pickled: bytes) -> bytes:
    place, request = pickle.loads(pickled)
    assert isinstance(place, Place) and isinstance(request, Request)
    place.enter()
    return pickle.dumps(answer(request))


def _warm_up() -> None:
    """What every child would import again. Never a backward pass: it would spoil later forks."""
    import torch

    from ..api import installed

    with installed():
        torch.zeros(2, device="cuda").add(1)
