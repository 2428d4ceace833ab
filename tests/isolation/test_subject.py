from __future__ import annotations

import sys
from pathlib import Path

import pytest

from redgreen.process import forked
from redgreen.subject import Call, UsageError, parse


def outcome(text: str) -> str:
    """What loading and calling the subject gives, in a child as always."""

    def work() -> bytes:
        subject = parse(text)
        subject.enter()
        try:
            return str(subject.load()()).encode()
        except UsageError as error:
            return f"usage: {error}".encode()

    ended = forked(work, 20)
    assert ended.payload is not None, ended.stderr.decode()
    return ended.payload.decode()


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_function_of_a_file_sees_what_python_would_show_it(here: Path) -> None:
    (here / "sub").mkdir()
    (here / "sub" / "neighbour.py").write_text("VALUE = 5")
    (here / "sub" / "main.py").write_text(
        "import os, sys\nfrom neighbour import VALUE\n"
        "def run(): return VALUE, sys.argv, sys.path[0], os.getcwd(), __name__\n"
    )
    expected = (5, [str(here / "sub/main.py")], str(here / "sub"), str(here), "main")
    assert outcome("sub/main.py:run") == str(expected)


def test_a_file_in_a_package_may_import_relatively(here: Path) -> None:
    (here / "pkg" / "inner").mkdir(parents=True)
    (here / "pkg" / "__init__.py").write_text("X = 1")
    (here / "pkg" / "inner" / "__init__.py").touch()
    main = here / "pkg" / "inner" / "main.py"
    main.write_text("from .. import X\ndef run(): return X, __name__")
    assert outcome("pkg/inner/main.py:run") == "(1, 'pkg.inner.main')"


def test_a_file_may_have_the_name_of_a_module_in_use(here: Path) -> None:
    (here / "json.py").write_text("def run(): return 'mine'")
    assert outcome("json.py:run") == "mine"


def test_a_function_of_a_module_is_found_from_the_working_directory(here: Path) -> None:
    (here / "pkg").mkdir()
    (here / "pkg" / "mod.py").write_text("class A:\n    @staticmethod\n    def run(): return 3")
    assert outcome("pkg.mod:A.run") == "3"


def test_a_script_runs_as_main(here: Path) -> None:
    (here / "script.py").write_text("if __name__ == '__main__':\n    raise SystemExit(__file__)")
    ended = forked(lambda: str(parse("script.py").load()()).encode(), 20)
    assert b"SystemExit: script.py" in ended.stderr


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("absent.py:run", "absent.py: no such file"),
        ("absent.py", "absent.py: no such file"),
        ("./absent:run", "./absent: no such file"),
        ("here.py:", "here.py:: name a function after the colon"),
        ("package.module", "package.module: not a subject; use file.py:function"),
        ("", ": not a subject"),
        (".:run", ".:run: not a subject"),
        ("./:run", "./: is a directory"),
    ],
)
def test_what_is_no_subject_is_one_line(here: Path, text: str, message: str) -> None:
    try:
        found = outcome(text)
    except AssertionError as child:
        assert message in str(child)  # refused while it was parsed
        with pytest.raises(UsageError) as error:
            parse(text)
        found = str(error.value)
    assert message in found
    assert "\n" not in found


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("rum", "main.py:rum: no such function; did you mean run?"),
        ("x", "main.py:x: no such function; it has asynchronous, generates, needs, run"),
        ("VALUE", "main.py:VALUE: of type int, not a function"),
        ("needs", "main.py:needs: takes (x, y=2), but is called without any"),
        ("generates", "a generator function; wrap it"),
        ("asynchronous", "a coroutine function; wrap it"),
    ],
)
def test_what_cannot_be_called_is_one_line(here: Path, name: str, message: str) -> None:
    (here / "main.py").write_text(
        "VALUE = 1\ndef run(): ...\ndef needs(x, y=2): ...\ndef generates(): yield\n"
        "async def asynchronous(): ...\n"
    )
    found = outcome(f"main.py:{name}")
    assert message in found
    assert "\n" not in found


def test_a_missing_module_is_usage_and_a_missing_import_inside_is_the_subjects(here: Path) -> None:
    assert outcome("absent.module:run") == "usage: absent.module:run: no module named absent"
    (here / "mod.py").write_text("import absent")
    with pytest.raises(AssertionError, match="No module named 'absent'"):
        outcome("mod:run")


def test_a_callable_has_the_name_of_its_file() -> None:
    subject = Call(test_a_callable_has_the_name_of_its_file)
    assert subject.name == "test_subject.py:test_a_callable_has_the_name_of_its_file"
    assert Call(len, ([1],)).load()() == 1
    with pytest.raises(UsageError, match="called with 1 argument"):
        Call(lambda: None, (1,)).load()


def test_parsing_imports_nothing(here: Path) -> None:
    (here / "main.py").write_text("raise AssertionError")
    before = set(sys.modules)
    assert parse("main.py:run").program == "main.py:run"
    assert parse("main.py").program == "main.py"
    assert set(sys.modules) == before
