"""The documents say what the program does: they are run, and compared with it."""

from __future__ import annotations

import ast
import difflib
import io
import json
import re
from collections.abc import Iterable, Iterator
from contextlib import redirect_stdout
from itertools import chain
from pathlib import Path
from typing import Any

import pytest

# Commands run in forked children, which then need not import these.
from redgreen import api, cli, jsonfile, plugin, replay  # noqa: F401
from redgreen.pytesting import documents, items, options, prover, summary  # noqa: F401
from redgreen.verdict import Diagnostic, Edge, Green, Mutant, Proof, Race, Spot
from tests.docs.console import ROOT, Terminal, agree, blocks, folder, normalised, warm_up

DOCS = sorted((ROOT / "docs").glob("*.md"))
PAGES = [*DOCS, ROOT / "CONTRIBUTING.md"]
REFERENCE = (ROOT / "docs" / "reference.md").read_text()


def _id(path: Path) -> str:
    return path.name


RUN = [page for page in PAGES if any(b.language == "console" for b in blocks(page.read_text()))]


@pytest.fixture(scope="session")
def warm() -> None:
    warm_up()


@pytest.fixture
def terminal(
    warm: None, pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Terminal]:
    """A terminal of 80 columns, without the settings of whoever runs the tests."""
    for name in ("CI", "BUILD_NUMBER", "NO_COLOR", "FORCE_COLOR"):
        monkeypatch.delenv(name, raising=False)
    # This process has imported redgreen, an installation for development perhaps.
    monkeypatch.setenv("PYTEST_ADDOPTS", "-W ignore::pytest.PytestAssertRewriteWarning")
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")

    def run_pytest(arguments: list[str]) -> tuple[str, int]:
        result = pytester.runpytest_inprocess(*arguments)
        return result.stdout.str() + result.stderr.str(), int(result.ret)

    with folder() as place:
        monkeypatch.chdir(place)
        yield Terminal(place, run_pytest)


def disagreements(text: str, terminal: Terminal) -> Iterator[str]:
    """Runs a document; what it shows otherwise than it is printed."""
    for block in blocks(text):
        if block.title:
            (terminal.folder / block.title).write_text("\n".join(block.lines) + "\n")
        if block.language != "console":
            continue
        for command in block.commands:
            printed = normalised(terminal.run(command.text))
            shown = normalised("\n".join(command.output))
            if not agree(shown, printed):
                lines = difflib.unified_diff(shown, printed, "shown", "printed", lineterm="", n=1)
                yield "\n".join([f"line {command.line}: $ {command.text}", *lines])


@pytest.mark.parametrize("page", RUN, ids=_id)
def test_document_shows_what_is_printed(page: Path, terminal: Terminal) -> None:
    found = list(disagreements(page.read_text(), terminal))
    assert not found, "\n\n".join([page.name, *found])


DOCUMENT = """
```python title="hello.py"
print("hello")
raise SystemExit(3)
```

```console
$ python hello.py
hello
$ echo $?
3
```
"""


def test_a_document_that_is_right_agrees(terminal: Terminal) -> None:
    assert list(disagreements(DOCUMENT, terminal)) == []


@pytest.mark.parametrize(
    "right, wrong",
    [("\nhello\n", "\nhallo\n"), ("\nhello\n", "\n"), ("\nhello\n", "\nhello\nagain\n"),
     ("\n3\n", "\n0\n"), ('print("hello")', 'print("hallo")')],
    ids=["other text", "less", "more", "status", "program"],
)  # fmt: skip
def test_a_document_that_is_wrong_does_not(terminal: Terminal, right: str, wrong: str) -> None:
    assert right in DOCUMENT
    assert list(disagreements(DOCUMENT.replace(right, wrong), terminal))


@pytest.mark.parametrize(
    "shown, yes",
    [("a b c", True), ("a ... c", True), ("... c", True), ("a ...", True), ("a ... b c", True),
     ("a ... b", False), ("b ... c", False), ("a c", False), ("a b c d", False), ("", False)],
)  # fmt: skip
def test_an_ellipsis_stands_for_any_lines(shown: str, yes: bool) -> None:
    assert agree(shown.split(), ["a", "b", "c"]) is yes


def test_tokens_and_durations_do_not_count() -> None:
    one = "W1  a.py:3 record\nrg1.ePlTOod_-A==\\\nabc=\n1 passed in 3.20s"
    two = "W1  a.py:3 record\nrg1.xyz\n1 passed in 71.00s (0:01:11)"
    assert normalised(one) == normalised(two)
    assert normalised(one) != normalised(two.replace("W1", "W2"))


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_blocks_are_of_a_kind_that_is_checked(page: Path) -> None:
    """A command with its output is a terminal, and Python is at least Python."""
    for block in blocks(page.read_text()):
        place = f"{page.name}:{block.line}"
        assert block.language in ("python", "console", "sh", "text", "json", "toml"), place
        if block.language != "console":
            assert not any(line.startswith("$ ") for line in block.lines), place
        if block.language == "python":
            ast.parse("\n".join(block.lines), place)
        if block.language == "json":
            json.loads("\n".join(block.lines))
        assert all(len(line) <= 100 for line in block.lines), place


def _anchor(heading: str) -> str:
    """As GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def _outside_blocks(text: str) -> str:
    return re.sub(r"^(`{3,}).*?^\1$", "", text, flags=re.M | re.S)


def broken_links(page: Path, text: str) -> list[str]:
    found = []
    for target in re.findall(r"\]\(([^)\s]+)\)", _outside_blocks(text)):
        if re.match(r"https?://", target):
            continue
        path, _, anchor = target.partition("#")
        to = (page.parent / path).resolve() if path else page
        if not to.exists():
            found.append(target)
        elif anchor:
            other = text if to == page else to.read_text()
            headings = re.findall(r"^#+ (.*)$", _outside_blocks(other), re.M)
            if anchor not in map(_anchor, headings):
                found.append(target)
    return found


@pytest.mark.parametrize("page", PAGES, ids=_id)
def test_links_lead_somewhere(page: Path) -> None:
    assert broken_links(page, page.read_text()) == []


@pytest.mark.parametrize(
    "link, works",
    [("docs/README.md", True), ("#here-too", True), ("docs/none.md", False), ("#there", False),
     ("docs/README.md#no-such-heading", False)],
)  # fmt: skip
def test_broken_links_are_found(link: str, works: bool) -> None:
    found = broken_links(ROOT / "CONTRIBUTING.md", f"# Here, too\n[x]({link})\n")
    assert (found == []) is works


def test_every_page_is_in_the_index() -> None:
    index = (ROOT / "docs" / "README.md").read_text()
    missing = [page.name for page in DOCS if page.name != "README.md"
               and f"]({page.name})" not in index]  # fmt: skip
    assert missing == []


def named(words: Iterable[str]) -> list[str]:
    """Those that the reference does not name, in code type."""
    code = " ".join(re.findall(r"`([^`\n]+)`", _outside_blocks(REFERENCE)))
    return sorted(word for word in set(words)
                  if not re.search(rf"(?<![\w-]){re.escape(word)}(?![\w-])", code))  # fmt: skip


def test_what_is_missing_in_the_reference_is_found() -> None:
    assert named(["--json", "--no-such-option"]) == ["--no-such-option"]


def _help(*arguments: str) -> str:
    out = io.StringIO()
    with redirect_stdout(out), pytest.raises(SystemExit):
        cli.main([*arguments, "--help"])
    return out.getvalue()


def _command_line_options() -> set[str]:
    text = "".join(_help(*command) for command in ((), ("prove",), ("replay",)))
    return set(re.findall(r"(?<![\w-])--[a-z-]+", text))


def test_reference_names_every_option_of_the_command_line() -> None:
    found = _command_line_options()
    assert {"--json", "--timeout", "--version"} <= found
    assert named(found) == []


def test_reference_names_every_setting_of_the_plugin(pytester: pytest.Pytester) -> None:
    text = "".join(pytester.runpytest_inprocess(option).stdout.str()
                   for option in ("--help", "--markers", "--fixtures"))  # fmt: skip
    flags = set(re.findall(r"--redgreen-[a-z]+", text))
    settings = set(re.findall(r"^\s*(redgreen_[a-z]+) ", text, re.M))
    keywords = set(re.findall(r"(\w+)=", re.search(r"pytest\.mark\.redgreen\(.*", text)[0]))  # type: ignore[index]
    assert len(flags) >= 5 and settings == set(options._INI) and "redundant" in keywords
    assert re.search(r"^virtual_gpu", text, re.M)
    assert named([*flags, *settings, *keywords, "green", "red", "virtual_gpu"]) == []


def test_reference_names_no_option_that_is_not_there(pytester: pytest.Pytester) -> None:
    there = _command_line_options()
    there |= set(re.findall(r"--[a-z-]+", pytester.runpytest_inprocess("--help").stdout.str()))
    said = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", REFERENCE))
    assert said - there == set()


def _keys(value: Any) -> Iterator[str]:
    if isinstance(value, dict):
        for key, child in value.items():
            yield key
            yield from _keys(child)
    if isinstance(value, list):
        for child in value:
            yield from _keys(child)


def test_reference_names_every_key_of_the_json() -> None:
    race = Race("RAW", "", True, None, Spot("", 0, "", ""), Spot("", 0, "", ""))
    edge = Edge("", "", "", 0, "", "", 0, "redundant")
    proof = Proof("", "virtual", Green("refuted", 1, 2, 3, None, (race,)), (edge,),
                  (Diagnostic("", "", 0, ""),),
                  (Mutant("", "early", "", "", 0, "", "", 0, "killed"),))  # fmt: skip
    found = set(_keys(proof.to_dict()))
    assert {"schema", "masked_with", "changes_output", "op", "message"} <= found
    assert named(found) == []
    [example] = [json.loads("\n".join(b.lines)) for b in blocks(REFERENCE) if b.language == "json"]
    assert set(_keys(example)) == found


def _calls(*paths: Path) -> Iterator[tuple[str, ast.Call]]:
    """The calls in these files, by the name of what is called."""
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                yield getattr(node.func, "attr", getattr(node.func, "id", "")), node


def test_reference_names_every_junit_property() -> None:
    source = Path(items.__file__)
    found = {f"redgreen_{word.arg}" for name, call in _calls(source) if name == "note"
             for word in call.keywords if word.arg}  # fmt: skip
    assert {"redgreen_verdict", "redgreen_witness", "redgreen_replay"} <= found
    assert named(found) == []


def test_reference_names_every_diagnostic() -> None:
    sources = (ROOT / "redgreen").rglob("*.py")
    place = {"Diagnostic": 0, "Note": 0, "note": 0, "at": 2}  # where the kind stands
    found = set()
    for name, call in _calls(*sources):
        if name in place and len(call.args) > place[name]:
            kind = call.args[place[name]]
            if isinstance(kind, ast.Constant) and isinstance(kind.value, str):
                found.add(kind.value)
    assert {"poison", "latent-use-after-free", "wait-on-unrecorded-event", "vacuous"} <= found
    assert named(found) == []


def test_every_dependency_is_argued() -> None:
    import tomllib

    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    wanted = [*project["dependencies"], *chain(*project["optional-dependencies"].values())]
    lines = (ROOT / "docs" / "dependencies.md").read_text().splitlines()
    rows = " ".join(line.split("|")[1] for line in lines if line.startswith("| "))
    missing = [name for name in (re.split(r"[<>=~!\[ ]", one)[0] for one in wanted)
               if not re.search(rf"(?<![\w-]){name}(?![\w-])", rows)]  # fmt: skip
    assert missing == []


def test_every_top_folder_is_in_contributing() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    folders = [f"{path.parent.name}/{path.name}/" if path.parent != ROOT else f"{path.name}/"
               for base in (ROOT, ROOT / "redgreen", ROOT / "tests") for path in base.iterdir()
               if (path / "__init__.py").exists()]  # fmt: skip
    assert "redgreen/virtual/" in folders
    assert [name for name in folders if f"`{name}`" not in text] == []
