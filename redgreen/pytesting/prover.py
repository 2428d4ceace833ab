"""The asking side of a prover process; one per hash seed, started when first needed."""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import pickle
import socket
import subprocess
import sys
import tempfile
from multiprocessing.connection import Connection

from .server import Place
from .work import Answer, Request

_START = (
    "import json, sys; sys.path[:] = json.loads(sys.argv[2]);"
    "from redgreen.pytesting.server import serve; serve(int(sys.argv[1]))"
)
_provers: dict[str, Prover] = {}


def ask(request: Request, hash_seed: str | None = None) -> Answer:
    """The answer of a prover whose PYTHONHASHSEED is this, by default the user's or 0."""
    seed = hash_seed or os.environ.get("PYTHONHASHSEED", "0")
    seed = seed if seed.isdigit() else "0"
    prover = _provers.get(seed)
    if prover is None or not prover.usable:
        prover = _provers[seed] = Prover(seed)
    return prover.ask(request)


class Prover:
    """A process that works on one request at a time."""

    def __init__(self, hash_seed: str) -> None:
        mine, theirs = socket.socketpair()
        self._owner = os.getpid()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - lives as long as the process
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-c", _START, str(theirs.fileno()), json.dumps(sys.path)],
                stdin=subprocess.DEVNULL, stdout=self._errors, stderr=self._errors,
                env={**os.environ, "PYTHONHASHSEED": hash_seed}, pass_fds=[theirs.fileno()],
                start_new_session=True,  # Ctrl-C is for pytest, which ends this process
            )  # fmt: skip
        self._connection = Connection(mine.detach())
        atexit.register(self.close)

    @property
    def usable(self) -> bool:
        """Alive, and not the prover of the process that this one was forked from."""
        return self._owner == os.getpid() and self._process.poll() is None

    def ask(self, request: Request) -> Answer:
        try:
            self._connection.send_bytes(pickle.dumps((Place.here(), request)))
            found: Answer = pickle.loads(self._connection.recv_bytes())
            return found
        except (EOFError, OSError):
            self.close()
            self._errors.seek(0)
            said = self._errors.read().decode("utf-8", "replace")
            return Answer("internal", f"the prover ended: {self._process.returncode}\n{said}")
        except BaseException:  # interrupted: what it sends later would answer the next question
            self.close()
            raise

    def close(self) -> None:
        """End it with all that it started."""
        if self._owner != os.getpid():
            return
        atexit.unregister(self.close)
        with contextlib.suppress(OSError):
            self._connection.close()
        self._process.kill()  # its children ask the kernel to end with it
        self._process.wait()
