"""``redgreen prove`` and ``redgreen replay``.

Exit statuses: 0 proved or reproduced; 1 refuted, different from the reference or not reproduced;
2 usage error or the subject raised; 3 inconclusive; 4 an error in redgreen; 130 interrupted. The
last is the shell's own: a script that maps 3 to "this program is nondeterministic" must not be told
so because somebody pressed Ctrl-C.

torch is imported only after the hash seed is fixed, because that starts Python again.
"""

from __future__ import annotations

import argparse
import errno
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from typing import Any, NoReturn, Self

from . import backend
from .asked import asked
from .jsonfile import JSONFile
from .progress import Progress
from .subject import UsageError, parse
from .token import Token, decode, hash_seed

INTERRUPTED = 130
_GUARD = "REDGREEN_HASH_SEED_FIXED"


class _Parser(argparse.ArgumentParser):
    """One line for an error: the usage is one --help away."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}; try {self.prog} --help\n")


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line; the exit status."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal without Unicode
    try:
        options = _parser().parse_args(_spelled_out(sys.argv[1:] if argv is None else argv))
        if not hasattr(options, "command"):
            raise UsageError("say what to do: redgreen prove SUBJECT, or redgreen --help")
        token = decode(options.token) if options.command is _replay else None
        if argv is None:
            _fix_hash_seed(token.hash_seed if token else "0")
        status: int = options.command(options, token)
        sys.stdout.flush()
        return status
    except UsageError as error:
        print(f"redgreen: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("redgreen: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:
        # The reader left; say nothing, and keep Python from complaining at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 4
    except Exception as error:
        if isinstance(error, OSError) and error.errno == errno.ENOSPC:
            print("redgreen: no space left on the device: the report is cut", file=sys.stderr)
            return 2
        traceback.print_exc()
        print("redgreen: this is a bug in redgreen; please report it with the traceback above",
              file=sys.stderr)  # fmt: skip
        return 4


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="redgreen",
        description="Find out which sync calls of a GPU program are load-bearing.",
        epilog="SUBJECT is file.py:function, package.module:function or script.py.",
    )
    parser.add_argument("--version", action="version", version=f"redgreen {_version()}")
    commands = parser.add_subparsers(metavar="COMMAND", parser_class=_Parser)

    prove = commands.add_parser("prove", help="a verdict for the program and for every sync call")
    prove.add_argument("subject", metavar="SUBJECT")
    prove.add_argument("--json", metavar="OUT", help="write the proof to this file as well")
    prove.add_argument("--reference", metavar="FILE.py:FN", help="what returns the right output")
    prove.add_argument("--edges", metavar="GLOB", help="verdicts only for edges in these files")
    prove.add_argument("--budget", metavar="N", type=_positive(int),
                       help="runs to spend on one question before it is inconclusive")
    prove.add_argument("--mutants", metavar="NAMES", nargs="?", const="all", default="",
                       help="also judge mutants: early,late,stream,collapse,free,unpin or all")
    prove.add_argument("--ring", metavar="FILE:LINE", action="append", default=[],
                       help="where a ring's buffers are allocated; repeat for several (collapse)")
    prove.set_defaults(command=_prove)

    replay = commands.add_parser("replay", help="run the schedule of a token again")
    replay.add_argument("token", metavar="TOKEN")
    replay.add_argument("subject", metavar="SUBJECT")
    replay.set_defaults(command=_replay)

    for command in (prove, replay):
        command.add_argument("--device", choices=backend.DEVICES, default="virtual")
        command.add_argument("--timeout", metavar="S", type=_positive(float), default=60.0,
                             help="seconds that one run may take (default 60)")
        command.add_argument("--quiet", action="store_true", help="no progress on stderr")
    prove.add_argument("--allocator", choices=backend.ALLOCATORS, type=backend.canonical,
                       help="how memory is handed out (default: as PYTORCH_ALLOC_CONF says)")
    return parser


def _spelled_out(arguments: Sequence[str]) -> list[str]:
    """A subject behind ``--mutants`` is not its value, which argparse cannot know."""
    result: list[str] = []
    for argument in arguments:
        subject = ":" in argument or argument.endswith(".py")
        if result and result[-1] == "--mutants" and subject:
            result[-1] = "--mutants=all"
        result.append(argument)
    return result


def _positive(kind: type[int] | type[float]) -> Callable[[str], float]:
    def convert(text: str) -> float:
        value = kind(text)
        if not 0 < value < float("inf"):
            raise ValueError(text)
        return value

    convert.__name__ = f"positive {'whole ' if kind is int else ''}number"  # argparse prints it
    return convert


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("pytest-redgreen")
    except PackageNotFoundError:  # a checkout that is not installed
        return "unknown"


def _fix_hash_seed(seed: str) -> None:
    """Start Python again with this PYTHONHASHSEED, unless it has it: sets of strings have an order.

    A seed that the user fixed is kept for a proof. Under ``python -E`` it cannot be fixed; the
    guard keeps that from going on for ever, and the token then says "random".
    """
    mine = hash_seed()
    fixed = mine == seed or seed == "random" or (seed == "0" and mine != "random")
    if fixed or os.environ.get(_GUARD):
        return
    environment = {**os.environ, "PYTHONHASHSEED": seed, _GUARD: "1"}
    sys.stdout.flush()
    sys.stderr.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)


def _prove(options: argparse.Namespace, _: None) -> int:
    subject = parse(options.subject)
    reference = parse(options.reference) if options.reference else None
    backend.check_mutants(options.device, asked(options.mutants or (), options.ring)[0])
    backend.check(options.device, backend.chosen(options.allocator))
    out = JSONFile(options.json) if options.json is not None else None
    progress = Progress(quiet=options.quiet)
    progress("importing torch")
    from . import api

    try:
        with _Interrupt() as interrupt:
            proof = api.prove_subject(
                subject, reference=reference, device=options.device, timeout=options.timeout,
                budget=options.budget, edges=options.edges, allocator=options.allocator,
                progress=progress, mutants=options.mutants or (), rings=options.ring,
            ).to_dict()  # fmt: skip
    except api.SubjectRaised as error:
        progress.close()
        return _raised(subject.name, str(error))
    finally:
        progress.close()
    status = _report(proof, out)
    if interrupt.hit:
        print("redgreen: interrupted; the report has what was known by then", file=sys.stderr)
        return INTERRUPTED
    return status


class _Interrupt:
    """Remembers a Ctrl-C, after which a proof returns what is known instead of raising."""

    hit = False

    def __enter__(self) -> Self:
        if threading.current_thread() is threading.main_thread():  # others are never interrupted
            self._before = signal.signal(signal.SIGINT, self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGINT, self._before)

    def _handle(self, *_: object) -> None:
        self.hit = True
        raise KeyboardInterrupt


def _report(proof: dict[str, Any], out: JSONFile | None) -> int:
    from .report.table import render

    try:
        sys.stdout.write(render(proof, colour=sys.stdout.isatty() and "NO_COLOR" not in os.environ))
        sys.stdout.flush()
    finally:  # also when the reader of the table has left
        if out:
            out.write(proof)
    return exit_status(proof)


def exit_status(proof: dict[str, Any]) -> int:
    """0, 1 or 3, from the JSON of a proof."""
    green = proof["green"]
    if green["verdict"] == "refuted" or green["reference"] == "different":
        return 1
    return {"proved": 0, "inconclusive": 3}[green["verdict"]]


def _replay(options: argparse.Namespace, token: Token) -> int:
    subject = parse(options.subject)
    progress = Progress(quiet=options.quiet)
    from .replay import BaseFailed, check_program, replay

    check_program(token, subject)
    backend.check(options.device, token.allocator)
    progress("importing torch")
    from .api import make_runner

    runner = make_runner(subject, options.device, token.allocator, options.timeout)
    try:
        progress("running the subject without faults, then as the token says")
        result = replay(token, subject, runner)
    except BaseFailed as error:
        progress.close()
        return _raised(subject.name, str(error))
    finally:
        progress.close()
    sys.stdout.write(result.text())
    return 3 if result.inconclusive else 0 if result.reproduced else 1


def _raised(name: str, detail: str) -> int:
    print(detail.rstrip(), file=sys.stderr)
    print(f"redgreen: {name} failed with every edge in place (above)", file=sys.stderr)
    return 2
