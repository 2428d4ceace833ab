"""Bad input is one clear line and exit status 2, before any work."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from redgreen.faults import Fault
from redgreen.schedule import LAZY
from redgreen.token import Token, encode
from tests.cli.conftest import Run
from tests.isolation.fake import EDGE

TOKEN = encode(Token(LAZY, frozenset({Fault("drop", EDGE)}), "main.py:run", "0", "native"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what to do"),
        (["prove"], "required: SUBJECT"),
        (["prove", "absent.py:run"], "absent.py: no such file"),
        (["prove", "absent.py"], "absent.py: no such file"),
        (["prove", "nonsense"], "not a subject; use file.py:function"),
        (["prove", "main.py:"], "name a function after the colon"),
        (["prove", "main.py:run", "--timeout", "0"], "invalid positive number value: '0'"),
        (["prove", "main.py:run", "--timeout", "nan"], "invalid positive number value"),
        (["prove", "main.py:run", "--budget", "-1"], "invalid positive whole number value: '-1'"),
        (["prove", "main.py:run", "--budget", "1.5"], "invalid positive whole number value"),
        (["prove", "main.py:run", "--device", "tpu"], "invalid choice: 'tpu'"),
        (["prove", "main.py:run", "--allocator", "x"], "invalid choice: 'x'"),
        (["prove", "main.py:run", "--nonsense"], "unrecognized arguments: --nonsense"),
        (["prove", "main.py:run", "--reference", "absent.py:f"], "absent.py: no such file"),
        (["prove", "main.py:run", "--json", "absent/out.json"], "no such file or directory"),
        (["prove", "main.py:run", "--json", "."], "--json .: cannot be written: is a directory"),
        (["prove", "main.py:run", "--json", ""], "--json : cannot be written: names no file"),
        (["prove", "main.py:run", "--json", "/proc/out.json"], "cannot be written"),
        (["prove", "main.py:run", "--json", "main.py/out"], "not a directory"),
        (["prove", "main.py:run", "--device", "cuda"], "device cuda:"),
        (["prove", "main.py:run", "--mutants", "earlier"], "no mutant 'earlier'; there are early"),
        (["prove", "--mutants=early,x", "main.py:run"], "no mutant 'x'"),
        (["prove", "main.py:run", "--mutants", "collapse"], "--ring FILE:LINE"),
        (["prove", "main.py:run", "--ring", "main.py"], "ring 'main.py': name the line"),
        (["prove", "--mutants", "absent.py:run"], "absent.py: no such file"),
        (["replay", "rg1.x"], "required: SUBJECT"),
        (["replay", "rg2.x", "main.py:run"], "made by another version"),
        (["replay", "nonsense", "main.py:run"], "not a redgreen token"),
        (["replay", TOKEN[:-9], "main.py:run"], "it is damaged"),
        (["replay", TOKEN, "absent.py:run"], "no such file"),
        (["replay", TOKEN, "main.py:other"], "it is of main.py:run, not of main.py:other"),
        (["replay", TOKEN, "other.py:run"], "it is of main.py:run, not of other.py:run"),
    ],
)
def test_bad_arguments(here: Path, redgreen: Run, arguments: list[str], message: str) -> None:
    for name in ("main.py", "other.py"):
        (here / name).write_text("raise SystemExit('imported')")
    assert message in redgreen(*arguments).line


def test_a_check_of_the_json_path_leaves_the_file_alone(here: Path, redgreen: Run) -> None:
    (here / "out.json").write_text("precious")
    assert redgreen("prove", "absent.py:run", "--json", "out.json").status == 2
    assert redgreen("prove", "absent.py:run", "--json", "new.json").status == 2
    assert [(p.name, p.read_text()) for p in here.iterdir()] == [("out.json", "precious")]


def test_version_and_help_do_not_import_torch(here: Path) -> None:
    code = (
        "import sys; from redgreen.cli import main\n"
        "try: main(sys.argv[1:])\n"
        "finally: assert 'torch' not in sys.modules"
    )
    for argument, expected in (("--version", "redgreen 0."), ("--help", "SUBJECT is file.py")):
        result = subprocess.run(
            [sys.executable, "-c", code, argument], capture_output=True, text=True
        )
        assert result.returncode == 0, result.stderr
        assert expected in result.stdout
        assert all(len(line) <= 100 for line in result.stdout.splitlines())


def test_importing_redgreen_is_light_and_prove_is_the_function(here: Path) -> None:
    code = (
        "import sys, redgreen\n"
        "assert 'torch' not in sys.modules\n"
        "from redgreen.proving import prove_runner\n"
        "import redgreen.cli\n"
        "assert callable(redgreen.prove) and callable(redgreen.installed), redgreen.prove\n"
        "assert redgreen.Proof.__name__ == 'Proof'\n"
        "try: redgreen.nonsense\n"
        "except AttributeError as e: print(e)\n"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert result.stdout == "module 'redgreen' has no attribute 'nonsense'\n", result.stderr


SEED = (
    "import os, sys; from redgreen import cli\n"
    "def show(*_): print(os.environ.get('PYTHONHASHSEED'), hash('x')); return 0\n"
    "cli._prove, cli._replay = lambda *_: show(), show\n"
    "cli.decode = lambda text: cli.Token(None, None, '', text, '')\n"
    "sys.exit(cli.main())"
)


@pytest.mark.parametrize(
    ("before", "arguments", "seed"),
    [
        (None, ["prove", "x"], "0"),
        ("random", ["prove", "x"], "0"),
        ("7", ["prove", "x"], "7"),
        (None, ["replay", "5", "x"], "5"),
        ("7", ["replay", "5", "x"], "5"),
        ("7", ["replay", "random", "x"], "7"),
    ],
)
def test_the_hash_seed_is_fixed_by_starting_again(
    here: Path, before: str | None, arguments: list[str], seed: str
) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
    if before is not None:
        environment["PYTHONHASHSEED"] = before
    results = [
        subprocess.run([sys.executable, "-c", SEED, *arguments], capture_output=True, text=True,
                       env=environment, check=True).stdout
        for _ in range(2)
    ]  # fmt: skip
    assert results[0].startswith(f"{seed} ")
    assert results[0] == results[1]


def test_where_the_hash_seed_cannot_be_fixed_it_is_tried_once(here: Path) -> None:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONHASHSEED"}
    result = subprocess.run([sys.executable, "-E", "-c", SEED, "prove", "x"], capture_output=True,
                            text=True, env=environment, timeout=20, check=True)  # fmt: skip
    assert result.stdout.startswith("0 ")  # in the environment, though Python did not heed it
