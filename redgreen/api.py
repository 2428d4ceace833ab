"""Proofs from Python, and a with-block in which torch.cuda is the virtual GPU."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from . import backend
from .asked import asked
from .difference import first_difference
from .isolation import ForkedRunner, virtual_gpu
from .proving import BUDGET, SubjectRaised, prove_runner
from .report.text import folded
from .run import Outcome
from .schedule import SERIAL, Schedule
from .subject import Call, Subject, UsageError, check_callable
from .token import Tokens
from .verdict import Diagnostic, Proof

__all__ = ["Proof", "SubjectRaised", "UsageError", "check", "installed", "prove"]

TIMEOUT = 60.0  # seconds a single run may take
OPTIONS = ("timeout", "budget", "edges", "allocator", "progress", "mutants", "rings")


def prove(
    callable: Callable[..., object],
    *args: Any,
    device: str = "virtual",
    reference: Callable[..., object] | None = None,
    **options: Any,
) -> Proof:
    """Find out which sync calls of ``callable(*args)`` are load-bearing.

    The callable runs many times, each time in a forked child: it must return tensors (any shape and
    dtype), arrays, numbers, strings or containers of these, and must not need anything that a child
    cannot inherit. ``reference`` is called with the same arguments and returns the right output.
    Random numbers: seed Python's and NumPy's generators inside the callable.

    Options: ``timeout`` seconds for one run (60), ``budget`` runs to spend on one question,
    ``edges`` a glob of the files whose edges get verdicts, ``allocator`` one of `redgreen.backend`
    (default: what the environment tells torch),
    ``progress`` a callable that takes a line of text, ``mutants`` operators of `redgreen.mutants`
    ("all", or names), ``rings`` places of allocations ("file.py:12") for its ``collapse``.

    Raises SubjectRaised if the callable raises with every edge in place (the traceback is in it),
    UsageError if it cannot be called so or the device is not there.
    """
    unknown = sorted(set(options) - set(OPTIONS))
    if unknown:
        raise UsageError(f"no option {unknown[0]!r}; there are {', '.join(OPTIONS)}")
    subject = Call(callable, args)
    check_callable(callable, subject.name, args)
    against = None if reference is None else Call(reference, args)
    return prove_subject(subject, device=device, reference=against, **options)


def check(
    callable: Callable[..., object],
    *args: Any,
    schedule: Schedule = SERIAL,
    reference: Callable[..., object] | None = None,
    allocator: str | None = None,
    timeout: float = TIMEOUT,
) -> None:
    """Run ``callable(*args)`` once under ``schedule`` and once serially (or the ``reference``).

    For property-based tests: the schedules come from `redgreen.strategies`. Raises AssertionError
    if the outputs differ in any byte, with the first that does and a token of the schedule;
    SubjectRaised if the serial run fails, UsageError as `prove` does and if the schedule does not
    fit or the virtual GPU refuses something, TimeoutError if there is no outcome.
    """
    subject = Call(callable, args)
    check_callable(callable, subject.name, args)
    allocator = backend.chosen(allocator)
    runner = make_runner(subject, "virtual", allocator, timeout)
    if reference is None:
        expected = runner.run(SERIAL).outcome
        if expected.status != "returned":
            raise SubjectRaised(f"{subject.name} failed:\n{expected.detail}")
    else:
        expected = _reference(make_runner(Call(reference, args), "virtual", allocator, timeout),
                              lambda line: None)
    run = runner.run(schedule)
    found = run.outcome
    if run.broken:
        raise UsageError(f"the schedule is not of this program: {run.broken[0]} could not be kept")
    if found.status in ("timeout", "stuck"):
        raise TimeoutError(f"no outcome ({found.status}) under {schedule}\n{found.detail}")
    if run.trace.refusals:
        raise UsageError(f"refused: {run.trace.refusals[0]}")
    difference = first_difference(expected, found)
    if difference:
        token = Tokens(subject.program, allocator, runner.digests)(schedule, frozenset())
        detail = f"\n{found.detail}" if found.detail else ""
        lines = [difference, f"schedule: {schedule}", "token:", *folded(token)]
        raise AssertionError("\n".join(lines) + detail)


def _check_numbers(**options: object) -> None:
    for name, value in options.items():
        if value is not None and not (isinstance(value, (int, float)) and value > 0):
            raise UsageError(f"{name} must be a number above zero, not {value!r}")


def prove_subject(
    subject: Subject,
    *,
    device: str = "virtual",
    reference: Subject | None = None,
    timeout: float = TIMEOUT,
    budget: int | None = None,
    edges: str | None = None,
    allocator: str | None = None,
    progress: Callable[[str], None] | None = None,
    mutants: str | Iterable[str] | None = (),
    rings: str | Iterable[str] | None = (),
) -> Proof:
    """`prove` for anything that can be named on the command line."""
    wanted, places = asked(mutants, rings)
    _check_numbers(timeout=timeout, budget=budget)
    backend.check_mutants(device, wanted)
    policy = backend.chosen(allocator)
    runner = make_runner(subject, device, policy, timeout)
    against = None if reference is None else make_runner(reference, device, policy, timeout)
    say = progress or (lambda line: None)
    expected = None if against is None else _reference(against, say)
    proof = prove_runner(
        runner,
        subject=subject.name,
        device=device,
        make_token=Tokens(subject.program, policy, runner.digests),
        reference=expected,
        budget=BUDGET if budget is None else budget,
        edges_glob=edges,
        progress=lambda what, done, total: say(f"{what} {done}/{total}, {runner.runs} runs"),
        mutants=wanted,
        rings=places,
    )
    if policy == "native":
        return proof
    variable = "" if allocator is not None else backend.from_environment()[1]
    why = f", as {variable} says" if variable else ""
    note = Diagnostic("allocator", "", 0, f"memory is handed out by the {policy} allocator{why}")
    return replace(proof, diagnostics=(note, *proof.diagnostics))


def _reference(runner: ForkedRunner, say: Callable[[str], None]) -> Outcome:
    """The right output: the reference is run as it is, and its own sync calls are not judged."""
    say(f"running the reference {runner.subject.name}")
    outcome = runner.run(SERIAL).outcome
    if outcome.status != "returned":
        raise SubjectRaised(f"the reference {runner.subject.name} failed:\n{outcome.detail}")
    return outcome


def make_runner(subject: Subject, device: str, allocator: str, timeout: float) -> ForkedRunner:
    """A runner of ``subject`` on ``device``; UsageError if there is no such device here."""
    backend.check(device, allocator)
    if device == "cuda":
        from .silicon.runner import DeviceRunner

        return DeviceRunner(subject, timeout=timeout)
    return ForkedRunner(subject, allocator=backend.canonical(allocator), timeout=timeout)


@contextmanager
def installed() -> Iterator[Any]:
    """A block in which ``torch.cuda`` is the virtual GPU, serial, in this process.

    Yields the virtual GPU. Device tensors do not outlive the block: return results with ``.cpu()``.
    """
    with virtual_gpu(SERIAL, frozenset(), allocator=backend.chosen(None),
                     step_limit=None) as gpu:
        yield gpu
