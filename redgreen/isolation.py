"""Runs a subject under the virtual GPU, each run in a forked child of this process.

A run must start from the same state as every other: pool counters, lazy module globals and capture
streams carry over inside one process. The parent is a template: it imports and warms up, and never
runs the subject.
"""

from __future__ import annotations

import contextlib
import importlib
import io
import os
import pickle
import random
import sys
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch

from . import child, subject
from .child import GPU, GPUFactory, Message
from .faults import Fault
from .process import Ended, forked
from .run import Leaf, Outcome, Run
from .schedule import SERIAL, Schedule
from .subject import Subject, UsageError


class ChildFailed(RuntimeError):
    """redgreen's own code failed in a child: an internal error, with the child's traceback."""


def virtual_gpu(*arguments: Any, **options: Any) -> GPU:
    """The real virtual GPU; imported late because it is heavy."""
    virtual = importlib.import_module("redgreen.virtual")
    gpu: GPU = virtual.VirtualGPU(*arguments, **options)
    return gpu


def _prepare() -> None:
    virtual = sys.modules.get("redgreen.virtual")
    if virtual is not None:  # a test may run without it
        virtual.prepare()


class ForkedRunner:
    """A `Runner`: every run in a forked child, ended after ``timeout`` seconds."""

    def __init__(
        self,
        subject: Subject,
        *,
        allocator: str = "native",
        timeout: float = 60.0,
        gpu: GPUFactory = virtual_gpu,
    ) -> None:
        self.subject = subject
        self.allocator = allocator
        self.timeout = timeout
        self.runs = 0  # so far
        self.digests: dict[tuple[Schedule, frozenset[Fault]], str] = {}  # of the latest outcomes
        self._endless: dict[tuple[Schedule, frozenset[Fault]], Run] = {}
        self._gpu = gpu
        self._warm = False

    def run(
        self,
        schedule: Schedule,
        faults: frozenset[Fault] = frozenset(),
        step_limit: int | None = None,
    ) -> Run:
        """Execute once. UsageError: there is no such function, or it cannot be called."""
        key = schedule, faults
        if key in self._endless:  # to wait again would only tell the same
            return self._endless[key]
        if not self.runs:
            self._warm_up()
        self.runs += 1
        _prepare()
        make = partial(self._make, schedule, faults, step_limit)
        ended = forked(lambda: child.work(self.subject, make, not self._warm), self.timeout)
        message = self._received(ended)
        if message.usage:
            raise UsageError(message.usage)
        if message.internal:
            raise ChildFailed(message.internal)
        if not self._warm and self.subject.own_imports and message.outcome.status == "returned":
            self._warm = True
            self._import_as_child_did(message.imported)
        self.digests[key] = message.outcome.digest()
        run = Run(schedule, faults, message.outcome, message.trace, message.hits, message.broken,
                  message.changed, message.given_up, message.held)
        if message.outcome.status == "timeout":
            self._endless[key] = run
        return run

    def _make(
        self,
        schedule: Schedule = SERIAL,
        faults: frozenset[Fault] = frozenset(),
        step_limit: int | None = None,
    ) -> GPU:
        return self._gpu(schedule, faults, allocator=self.allocator, step_limit=step_limit)

    def _warm_up(self) -> None:
        """One forward operator, so that children do not each pay for torch's lazy start.

        No backward: a process that has run one cannot fork children that run another.
        """
        with self._make() as gpu:
            torch.zeros(2, device="cuda").add(1)
            gpu.finish()

    def _import_as_child_did(self, names: list[str]) -> None:
        """Import what each child would import again; an optimisation, so errors do not matter.

        Under a virtual GPU, because a library may look at ``torch.cuda`` while it is imported.
        """
        path, argv, state = sys.path.copy(), sys.argv, random.getstate()
        try:
            self.subject.enter()
            with silenced(), self._make() as gpu:
                for name in names:
                    import_quietly(name)
                gpu.finish()
        finally:
            sys.path[:], sys.argv = path, argv
            random.setstate(state)

    def _received(self, ended: Ended) -> Message:
        printed = ended.stdout.decode("utf-8", "surrogateescape")
        errors = ended.stderr.decode("utf-8", "replace")
        stacks = _trimmed(ended.stacks)
        said = _section("standard output", printed) + _section("standard error", errors)
        if ended.payload is not None:
            message: Message = pickle.loads(ended.payload)
            outcome = message.outcome
            if outcome.status != "returned":
                message.outcome = replace(outcome, detail=outcome.detail + said)
            elif self.subject.prints:
                message.outcome = replace(outcome, leaves=_lines(printed))
            return message
        if ended.how == "timeout":
            detail = f"no result after {self.timeout:g} s\n{stacks}{said}"
            return Message(Outcome("timeout", (), detail))
        if ended.how == "flooded":
            return Message(Outcome("diverged", (), f"it printed without end\n{said[-2000:]}"))
        leaf = Leaf("", "died", ended.cause.encode())
        return Message(Outcome("died", (leaf,), f"{ended.cause}\n{stacks}{said}"))


def import_quietly(name: str) -> None:
    try:
        importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException:  # a library may raise anything while it is imported
        return


@contextlib.contextmanager
def silenced() -> Iterator[None]:
    """Libraries print while they are imported; the child has said it all before."""
    streams = sys.stdout, sys.stderr
    for stream in streams:
        stream.flush()
    saved = [(fd, os.dup(fd)) for fd in (1, 2)]
    null = os.open(os.devnull, os.O_WRONLY)
    try:
        for fd, _ in saved:
            os.dup2(null, fd)
        yield
    finally:
        sys.stdout, sys.stderr = streams
        for stream in streams:
            stream.flush()
        for fd, copy in saved:
            os.dup2(copy, fd)
            os.close(copy)
        os.close(null)


def _trimmed(stacks: str) -> str:
    """Each thread's frames, latest first, down to the subject's first."""
    mine = tuple(f'  File "{file}"' for file in (child.__file__, subject.__file__))
    lines: list[str] = []
    ours = False
    for line in stacks.splitlines(keepends=True):
        ours = line.startswith("  File ") and (ours or line.startswith(mine))
        if not ours:
            lines.append(line)
    return "".join(lines)


def _section(title: str, text: str) -> str:
    return f"--- {title} ---\n{text.rstrip()}\n" if text.strip() else ""


def _lines(printed: str) -> tuple[Leaf, ...]:
    """A leaf per line, so that the first line that differs can be named."""
    return tuple(
        Leaf(f"line {number}", "stdout", line.encode("utf-8", "surrogateescape"))
        for number, line in enumerate(io.StringIO(printed, newline="\n"), 1)
    )
