"""Runs of small subjects under a fake GPU: what becomes an outcome, and that runs start alike."""

from __future__ import annotations

import gc
import os
import random
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest
import torch

from redgreen.faults import Fault
from redgreen.isolation import ChildFailed, ForkedRunner
from redgreen.schedule import LAZY, SERIAL
from redgreen.subject import Call, UsageError, parse
from tests.isolation import fake
from tests.isolation.fake import EDGE, FakeGPU

DROP = Fault("drop", EDGE)


def runner(subject: Any, timeout: float = 20, **options: Any) -> ForkedRunner:
    subject = parse(subject) if isinstance(subject, str) else Call(subject)
    return ForkedRunner(subject, timeout=timeout, gpu=FakeGPU, **options)


def test_output_trace_and_hits_come_back() -> None:
    run = runner(lambda: [torch.ones(1), fake.gpu().wait()]).run(LAZY, frozenset({DROP}))
    assert run.schedule == LAZY and run.faults == {DROP}
    assert run.outcome.status == "returned"
    assert [leaf.data for leaf in run.outcome.leaves][2] == b"False"
    assert run.hits == {DROP: 1}
    assert [step.label for step in run.trace.steps] == list(fake.STEPS)


def test_schedule_allocator_and_limit_reach_the_gpu() -> None:
    subject = lambda: (str(fake.gpu().schedule), fake.gpu().allocator, fake.gpu().step_limit)  # noqa: E731
    run = runner(subject, allocator="async").run(LAZY, step_limit=7)
    assert [leaf.data for leaf in run.outcome.leaves][1:] == [b"lazy", b"async", b"7"]


def test_what_a_run_changes_is_gone_in_the_next() -> None:
    seen: list[int] = []

    def subject() -> int:
        seen.append(1)
        return len(seen)

    forked = runner(subject)
    assert forked.run(SERIAL).outcome == forked.run(SERIAL).outcome
    assert not seen


def test_an_exception_is_its_type_and_first_line_and_a_traceback_of_the_subject_alone() -> None:
    def subject() -> None:
        print("said before")
        raise ValueError("first\nsecond")

    outcome = runner(subject).run(SERIAL).outcome
    assert outcome.status == "raised"
    assert outcome.leaves[0].data == b"ValueError: first"
    lines = outcome.detail.splitlines()
    assert "test_runner.py" in lines[1] and "in subject" in lines[1]
    assert "second" in outcome.detail
    assert outcome.detail.endswith("--- standard output ---\nsaid before\n")


def test_where_an_error_surfaced_is_no_part_of_the_outcome() -> None:
    def at_once() -> None:
        raise RuntimeError("CUDA error")

    def later() -> None:
        at_once()

    assert runner(at_once).run(SERIAL).outcome == runner(later).run(SERIAL).outcome


@pytest.mark.parametrize("code", [0, 1, "text", None])
def test_a_function_that_exits_raised(code: object) -> None:
    outcome = runner(lambda: sys.exit(code)).run(SERIAL).outcome  # type: ignore[arg-type]
    assert outcome.status == "raised"
    assert outcome.leaves[0].data == f"SystemExit: {'' if code is None else code}".encode() or (
        outcome.leaves[0].data == b"SystemExit: None"
    )


def test_death_is_an_outcome() -> None:
    outcome = runner(lambda: os._exit(5)).run(SERIAL).outcome
    assert outcome.status == "died"
    assert outcome.leaves[0].data == b"the process ended itself with exit status 5"
    outcome = runner(lambda: os.kill(os.getpid(), 11)).run(SERIAL).outcome
    assert (outcome.status, outcome.leaves[0].data) == ("died", b"SIGSEGV")
    assert "test_runner.py" in outcome.detail


def test_a_host_loop_that_does_steps_diverges() -> None:
    def subject() -> None:
        while True:
            fake.gpu().step()

    outcome = runner(subject).run(SERIAL, step_limit=1000).outcome
    assert outcome.status == "diverged"
    assert "in subject" in outcome.detail


def test_a_host_loop_without_steps_runs_out_of_time_and_shows_every_thread() -> None:
    def waits_for_ever() -> None:
        threading.Event().wait()

    def subject() -> None:
        threading.Thread(target=waits_for_ever).start()
        while True:
            time.sleep(0.01)

    run = runner(subject, timeout=0.5).run(SERIAL)
    assert run.outcome.status == "timeout"
    assert run.outcome.detail.startswith("no result after 0.5 s\n")
    assert "waits_for_ever" in run.outcome.detail and "in subject" in run.outcome.detail
    assert "/redgreen/" not in run.outcome.detail
    assert run.trace.steps == []


def test_a_run_out_of_time_is_not_waited_for_again() -> None:
    forked = runner(lambda: time.sleep(60), timeout=0.3)
    assert forked.run(SERIAL) is forked.run(SERIAL)
    assert forked.run(LAZY).outcome.status == "timeout"
    assert forked.runs == 2


def test_output_without_bytes_is_the_subjects_error() -> None:
    outcome = runner(lambda: object()).run(SERIAL).outcome
    assert outcome.status == "raised"
    assert outcome.leaves[0].data.startswith(b"Unreadable: the subject's output is an instance of")


def test_garbage_cycles_die_at_fixed_points_only() -> None:
    def subject() -> list[bool]:
        class Node:
            pass

        node: Any = Node()
        node.me = node
        dead = weakref.ref(node)
        del node
        gc.enable()  # as libraries do
        waste = [[i] for i in range(100_000)]  # far over the collector's thresholds
        return [dead() is not None, len(waste) == 100_000, gc.collect() > 0, dead() is None]

    leaves = runner(subject).run(SERIAL).outcome.leaves
    assert [leaf.data for leaf in leaves[1:]] == [b"True"] * 4
    assert gc.isenabled() and gc.get_threshold()[0] > 0


def test_unseeded_generators_differ_from_run_to_run_and_seeded_ones_do_not() -> None:
    import numpy.random

    random.seed(1)
    numpy.random.seed(1)
    for draw in (random.random, numpy.random.rand):
        forked = runner(draw)
        assert forked.run(SERIAL).outcome != forked.run(SERIAL).outcome

    def seeded() -> list[float]:
        random.seed(2)
        numpy.random.seed(2)
        return [random.random(), numpy.random.rand(), torch.rand(1).item()]

    forked = runner(seeded)
    assert forked.run(SERIAL).outcome == forked.run(SERIAL).outcome


def test_one_intra_op_thread_in_the_child_only() -> None:
    before = torch.get_num_threads()
    assert runner(torch.get_num_threads).run(SERIAL).outcome.leaves[0].data == b"1"
    assert torch.get_num_threads() == before


def test_a_backward_works_in_every_child_as_long_as_the_parent_has_run_none() -> None:
    def subject() -> torch.Tensor | None:
        x = torch.ones(2, requires_grad=True)
        (x * x).sum().backward()
        return x.grad

    # In a child of its own, since other tests may have run a backward in this process.
    def fresh() -> bytes:
        forked_runner = runner(subject)
        statuses = [forked_runner.run(SERIAL).outcome.status for _ in range(2)]
        subject()
        broken = forked_runner.run(SERIAL).outcome
        return repr((statuses, broken.status, broken.detail)).encode()

    from redgreen.process import forked

    payload = forked(fresh, 60).payload
    assert payload is not None
    if b"fork-based multiprocessing" in payload:  # unless another test ran a backward already
        assert b"ran a backward pass before" in payload
    else:
        assert payload.startswith(b"(['returned', 'returned'], 'returned'")


def test_an_error_of_the_gpu_itself_is_an_internal_error() -> None:
    class Broken(FakeGPU):
        def finish(self) -> Any:
            if os.getpid() != parent:
                raise AssertionError("the reason")

    parent = os.getpid()
    forked = ForkedRunner(Call(lambda: 1), gpu=Broken)
    with pytest.raises(ChildFailed, match="AssertionError: the reason"):
        forked.run(SERIAL)


def test_the_module_is_imported_inside_every_run(tmp_path: Path) -> None:
    file = tmp_path / "main.py"
    file.write_text(
        "from tests.isolation import fake\nSTEP = fake.gpu().step()\n"
        "def run(): return fake.gpu().steps"
    )
    forked = runner(f"{file}:run")
    for _ in range(2):
        assert forked.run(SERIAL).outcome.leaves[0].data == b"1"
    assert "main" not in sys.modules


def test_an_error_while_importing_is_the_subjects(tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("import absent_module")
    outcome = runner(f"{tmp_path}/main.py:run").run(SERIAL).outcome
    assert outcome.leaves[0].data == b"ModuleNotFoundError: No module named 'absent_module'"
    (tmp_path / "main.py").write_text("def run(:")
    outcome = runner(f"{tmp_path}/main.py:run").run(SERIAL).outcome
    assert outcome.leaves[0].data.startswith(b"SyntaxError")
    assert "redgreen/" not in outcome.detail


def test_a_missing_function_is_a_usage_error(tmp_path: Path) -> None:
    (tmp_path / "main.py").touch()
    with pytest.raises(UsageError, match="no such function"):
        runner(f"{tmp_path}/main.py:run").run(SERIAL)


SCRIPT = """
import atexit, sys, threading, time
atexit.register(print, "at exit")
print("first")
print("to stderr", file=sys.stderr)
def late():
    time.sleep(0.1)
    print("from a thread")
threading.Thread(target=late).start()
"""


def test_the_output_of_a_script_is_what_it_prints_line_by_line(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    outcome = runner(f"{tmp_path}/script.py").run(SERIAL).outcome
    assert outcome.status == "returned"
    assert [(leaf.path, leaf.data) for leaf in outcome.leaves] == [
        ("line 1", b"first\n"), ("line 2", b"from a thread\n"), ("line 3", b"at exit\n"),
    ]  # fmt: skip


@pytest.mark.parametrize(("end", "status"), [("0", "returned"), ("", "returned"), ("3", "raised")])
def test_a_script_may_exit(tmp_path: Path, end: str, status: str) -> None:
    (tmp_path / "script.py").write_text(f"print('x', end='')\nraise SystemExit({end})")
    outcome = runner(f"{tmp_path}/script.py").run(SERIAL).outcome
    assert outcome.status == status
    assert outcome.leaves[0].data == (b"x" if status == "returned" else b"SystemExit: 3")


def test_third_party_imports_are_paid_once(tmp_path: Path) -> None:
    package = tmp_path / "site-packages"
    package.mkdir()
    (package / "heavy.py").write_text("import os\nPID = os.getpid()")
    (tmp_path / "main.py").write_text("def run():\n    import heavy\n    return heavy.PID")

    def fresh() -> bytes:
        import sysconfig

        sys.path.insert(1, str(package))
        real = sysconfig.get_path
        sysconfig.get_path = lambda name, *rest: (  # type: ignore[assignment]
            str(package) if name == "purelib" else real(name, *rest)
        )
        forked_runner = runner(f"{tmp_path}/main.py:run")
        first, second, third = (forked_runner.run(SERIAL).outcome.leaves[0] for _ in range(3))
        me = str(os.getpid()).encode()
        return repr([first.data == me, second.data == me, third.data == me]).encode()

    from redgreen.process import forked

    assert forked(fresh, 20).payload == b"[False, True, True]"


def test_the_parent_prints_nothing_of_what_it_imports(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "noisy_library.py").write_text(
        "import os, sys\nos.write(2, b'noise')\nos.system('echo noise')\nsys.stdout = None\n"
        "raise SystemExit"
    )
    (tmp_path / "main.py").write_text("def run(): return 1")
    monkeypatch.syspath_prepend(str(tmp_path))
    forked = runner(f"{tmp_path}/main.py:run")
    stdout = sys.stdout
    forked._import_as_child_did(["noisy_library", "absent_library"])
    assert sys.stdout is stdout
    assert capfd.readouterr() == ("", "")


def test_the_callers_frame_stands_in_for_the_subject_and_is_in_no_traceback() -> None:
    def subject() -> list[object]:
        above = sys._getframe(1)
        while above.f_code.co_filename != __file__:
            assert above.f_back is not None
            above = above.f_back
        return [above.f_code.co_name, above.f_lineno == subject.__code__.co_firstlineno]

    leaves = runner(subject).run(SERIAL).outcome.leaves
    assert [leaf.data for leaf in leaves[1:]] == [b"subject", b"True"]
