"""Runs a subject under the virtual GPU, each run in a forked child of this process.

A run must start from the same state as every other: pool counters, lazy module globals and capture
streams carry over inside one process. The parent is a template: it imports and warms up, and never
runs the subject.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import io
import pickle
import random
import site
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from types import TracebackType
from typing import Any, Protocol, Self

import torch

from .faults import Fault
from .leaves import flatten
from .process import Ended, forked
from .run import Leaf, Outcome, Run, Status
from .schedule import SERIAL, Order, Schedule
from .subject import Subject, UsageError
from .trace import Trace


class Record(Protocol):
    """What a virtual GPU knows after a run."""

    @property
    def trace(self) -> Trace: ...
    @property
    def hits(self) -> Mapping[Fault, int]: ...
    @property
    def broken(self) -> tuple[Order, ...]: ...
    @property
    def changed(self) -> Mapping[Fault, int]: ...


class GPU(Protocol):
    """A virtual GPU, installed while its with-block is open."""

    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> bool | None: ...
    def finish(self) -> Record: ...


# What the backend raises in a run that has no end, by name: those modules are imported in children.
_NO_END: dict[str, Status] = {"Diverged": "diverged", "Deadlock": "stuck"}

# (schedule, faults, allocator=..., step_limit=...)
GPUFactory = Callable[..., GPU]


class ChildFailed(RuntimeError):
    """redgreen's own code failed in a child: an internal error, with the child's traceback."""


@dataclass(slots=True)
class _Message:
    """What a child sends back."""

    outcome: Outcome
    trace: Trace = field(default_factory=Trace)
    hits: Mapping[Fault, int] = field(default_factory=dict)
    broken: tuple[Order, ...] = ()
    changed: Mapping[Fault, int] = field(default_factory=dict)
    imported: list[str] = field(default_factory=list)  # third-party modules
    usage: str = ""  # the subject cannot be run at all
    internal: str = ""  # traceback of an error in redgreen


def virtual_gpu(*arguments: Any, **options: Any) -> GPU:
    """The real virtual GPU; imported late because it is heavy."""
    virtual = importlib.import_module("redgreen.virtual")
    gpu: GPU = virtual.VirtualGPU(*arguments, **options)
    return gpu


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
        ended = forked(lambda: self._in_child(schedule, faults, step_limit), self.timeout)
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
                  message.changed)
        if message.outcome.status == "timeout":
            self._endless[key] = run
        return run

    # -- in the parent ---------------------------------------------------------------------------

    def _warm_up(self) -> None:
        """One forward operator, so that children do not each pay for torch's lazy start.

        No backward: a process that has run one cannot fork children that run another.
        """
        with self._gpu(SERIAL, frozenset(), allocator=self.allocator, step_limit=None) as gpu:
            torch.zeros(2, device="cuda").add(1)
            gpu.finish()

    def _import_as_child_did(self, names: list[str]) -> None:
        """Import what each child would import again; an optimisation, so errors do not matter.

        Under a virtual GPU, because a library may look at ``torch.cuda`` while it is imported.
        """
        path, argv, state = sys.path.copy(), sys.argv, random.getstate()
        streams = sys.stdout, sys.stderr
        try:
            self.subject.enter()
            with self._gpu(SERIAL, frozenset(), allocator=self.allocator, step_limit=None) as gpu:
                for name in names:
                    # A library may raise anything while it is imported, and the child had it work.
                    _import_quietly(name)
                gpu.finish()
        finally:
            sys.path[:], sys.argv = path, argv
            sys.stdout, sys.stderr = streams
            random.setstate(state)

    def _received(self, ended: Ended) -> _Message:
        printed = ended.stdout.decode("utf-8", "surrogateescape")
        errors = ended.stderr.decode("utf-8", "replace")
        stacks = _trimmed(ended.stacks)
        said = _section("standard output", printed) + _section("standard error", errors)
        if ended.payload is not None:
            message: _Message = pickle.loads(ended.payload)
            outcome = message.outcome
            if outcome.status != "returned":
                message.outcome = replace(outcome, detail=outcome.detail + said)
            elif self.subject.prints:
                message.outcome = replace(outcome, leaves=_lines(printed))
            return message
        if ended.how == "timeout":
            detail = f"no result after {self.timeout:g} s\n{stacks}{said}"
            return _Message(Outcome("timeout", (), detail))
        if ended.how == "flooded":
            return _Message(Outcome("diverged", (), f"it printed without end\n{said[-2000:]}"))
        leaf = Leaf("", "died", ended.cause.encode())
        return _Message(Outcome("died", (leaf,), f"{ended.cause}\n{stacks}{said}"))

    # -- in the child ----------------------------------------------------------------------------

    def _in_child(
        self, schedule: Schedule, faults: frozenset[Fault], step_limit: int | None
    ) -> bytes:
        try:
            message = self._execute(schedule, faults, step_limit)
            return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
        except UsageError as error:
            return pickle.dumps(_Message(Outcome("raised"), usage=str(error)))
        except BaseException:
            return pickle.dumps(_Message(Outcome("raised"), internal=traceback.format_exc()))

    def _execute(
        self, schedule: Schedule, faults: frozenset[Fault], step_limit: int | None
    ) -> _Message:
        before = set(sys.modules)
        _start_state()
        self.subject.enter()
        gpu = self._gpu(schedule, faults, allocator=self.allocator, step_limit=step_limit)
        with gpu:
            outcome = self._outcome()
            gc.collect()
            record = gpu.finish()
        message = _Message(outcome, record.trace, dict(record.hits), tuple(record.broken),
                           dict(record.changed))
        if not self._warm:
            message.imported = list(_third_party(before, self.subject.program))
        return message

    def _outcome(self) -> Outcome:
        try:
            call = self.subject.load()
            gc.collect()
            value = call()
            if self.subject.prints:
                _finish_script()
                return Outcome("returned")
            gc.collect()
            return Outcome("returned", flatten(value))
        except UsageError:
            raise
        except SystemExit as error:
            if self.subject.prints and error.code in (None, 0):
                _finish_script()
                return Outcome("returned")
            return Outcome("raised", (_error_leaf(error),), _explain(error))
        except BaseException as error:
            if type(error).__module__.startswith("redgreen."):
                status = _NO_END.get(type(error).__name__)
                if status is not None:
                    return Outcome(status, (), _explain(error))
            return Outcome("raised", (_error_leaf(error),), _explain(error))


def _start_state() -> None:
    """What every run starts from, whatever the template did before."""
    torch.set_num_threads(1)
    gc.disable()
    gc.set_threshold(0)  # also for libraries that enable it again: collect at fixed points only
    gc.freeze()
    atexit._clear()
    # A fork copies the state of the generators, which would make an unseeded one look seeded.
    random.seed()
    if "numpy.random" in sys.modules:
        sys.modules["numpy.random"].seed()


def _finish_script() -> None:
    """What the interpreter does at the end of a program: join threads, run exit handlers."""
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()


def _third_party(before: set[str], program: str) -> Iterator[str]:
    """Modules from site-packages that this run imported, except the subject's own package."""
    roots = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    roots |= set(site.getsitepackages()) | {site.getusersitepackages()}
    own = program.partition(":")[0].partition(".")[0]
    for name, module in list(sys.modules.items()):
        origin = getattr(getattr(module, "__spec__", None), "origin", None) or ""
        new = name not in before and name.partition(".")[0] not in (own, "redgreen")
        if new and any(origin.startswith(root) for root in roots):
            yield name


def _import_quietly(name: str) -> None:
    try:
        importlib.import_module(name)
    except KeyboardInterrupt:
        raise
    except BaseException:
        return


def _error_leaf(error: BaseException) -> Leaf:
    first = (str(error).splitlines() or [""])[0]
    return Leaf("", "error", f"{type(error).__name__}: {first}".encode("utf-8", "backslashreplace"))


def _explain(error: BaseException) -> str:
    """The traceback from the subject's first frame on."""
    frames = error.__traceback__
    while frames is not None and _is_ours(frames):
        frames = frames.tb_next
    text = "".join(traceback.format_exception(type(error), error, frames))
    if "autograd's threading in combination with fork" in str(error):
        text += (
            "This process ran a backward pass before, and torch cannot fork it any more.\n"
            "Prove the subject from the command line, or before the first backward.\n"
        )
    return text


def _is_ours(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    return file in (__file__, sys.modules["redgreen.subject"].__file__) or file.startswith(
        "<frozen "
    )


def _trimmed(stacks: str) -> str:
    """Each thread's frames, latest first, down to the subject's first."""
    lines, ours = [], False
    for line in stacks.splitlines(keepends=True):
        ours = line.startswith("  File ") and (ours or f'"{__file__}"' in line)
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
