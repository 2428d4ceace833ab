"""One run of a subject, inside the process that was forked for it."""

from __future__ import annotations

import atexit
import gc
import itertools
import os
import pickle
import random
import site
import sys
import sysconfig
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Protocol, Self

import torch

from . import frame
from .faults import Fault
from .leaves import flatten
from .run import Leaf, Outcome, Record, Status
from .schedule import Order
from .subject import Subject, UsageError
from .trace import Trace

_HERE = os.path.dirname(__file__) + os.sep


class GPU(Protocol):
    """A virtual GPU or the recorder of a real one, installed while its with-block is open."""

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
_NO_END: dict[str, Status] = {
    "Diverged": "diverged", "Deadlock": "stuck", "Stuck": "stuck"
}  # fmt: skip

# (schedule, faults, allocator=..., step_limit=...)
GPUFactory = Callable[..., GPU]


@dataclass(slots=True)
class Message:
    """What the child sends back."""

    outcome: Outcome
    trace: Trace = field(default_factory=Trace)
    hits: Mapping[Fault, int] = field(default_factory=dict)
    broken: tuple[Order, ...] = ()
    changed: Mapping[Fault, int] = field(default_factory=dict)
    given_up: tuple[Order, ...] = ()
    held: tuple[Order, ...] = ()
    imported: list[str] = field(default_factory=list)  # third-party modules
    usage: str = ""  # the subject cannot be run at all
    internal: str = ""  # traceback of an error in redgreen


def work(subject: Subject, make: Callable[[], GPU], tell_imports: bool) -> bytes:
    """Run ``subject`` under the GPU that ``make`` makes; a pickled `Message`, whatever happens."""
    try:
        message = _execute(subject, make, tell_imports)
        return pickle.dumps(message, pickle.HIGHEST_PROTOCOL)
    except UsageError as error:
        return pickle.dumps(Message(Outcome("raised"), usage=str(error)))
    except BaseException:
        return pickle.dumps(Message(Outcome("raised"), internal=traceback.format_exc()))


def _execute(subject: Subject, make: Callable[[], GPU], tell_imports: bool) -> Message:
    last = next(reversed(sys.modules))  # to list them all would copy a page of each
    _start_state()
    subject.enter()
    with make() as gpu:
        outcome = outcome_of(subject)
        gc.collect()
        record = gpu.finish()
    imported = list(_third_party(last, subject.program)) if tell_imports else []
    return Message(outcome, record.trace, dict(record.hits), tuple(record.broken),
                   dict(record.changed), tuple(record.given_up), tuple(record.held), imported)


def outcome_of(subject: Subject) -> Outcome:
    try:
        call = subject.load()
        gc.collect()
        return frame.under(lambda: _called(subject, call), *subject.place(call))
    except UsageError:
        raise
    except SystemExit as error:
        if subject.prints and error.code in (None, 0):
            _finish_script()
            return Outcome("returned")
        return Outcome("raised", (_error_leaf(error),), _explain(error))
    except BaseException as error:
        if type(error).__module__.startswith("redgreen."):
            status = _NO_END.get(type(error).__name__)
            if status is not None:
                return Outcome(status, (), _explain(error))
        return Outcome("raised", (_error_leaf(error),), _explain(error))


def _called(subject: Subject, call: Callable[[], object]) -> Outcome:
    value = call()
    if subject.prints:
        _finish_script()
        return Outcome("returned")
    gc.collect()
    return Outcome("returned", flatten(value))


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


def _third_party(last: str, program: str) -> Iterator[str]:
    """Modules from site-packages imported after ``last``, except the subject's own package."""
    names = list(itertools.takewhile(lambda name: name != last, reversed(sys.modules)))
    if not names:
        return
    roots = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    roots |= set(site.getsitepackages()) | {site.getusersitepackages()}
    own = program.partition(":")[0].partition(".")[0]
    for name in reversed(names):
        spec = getattr(sys.modules[name], "__spec__", None)
        origin = getattr(spec, "origin", None) or ""
        if name.partition(".")[0] not in (own, "redgreen") and origin.startswith(tuple(roots)):
            yield name


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
    code = trace.tb_frame.f_code
    return (code.co_filename.startswith(_HERE) or code.co_filename.startswith("<frozen ")
            or frame.is_stand_in(code.co_varnames))
