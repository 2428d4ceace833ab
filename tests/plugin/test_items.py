"""Which items there are, and what they are called."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import EDGES, JOINED, outcome

ITEMS = ["test_a.py::test_joined[green]", *(f"test_a.py::test_joined[red:{e}]" for e in EDGES)]


def collected(result: pytest.RunResult) -> list[str]:
    return [line for line in result.outlines if "::" in line]


def test_one_green_and_a_red_for_each_edge_that_is_named(project: pytest.Pytester) -> None:
    project.makepyfile(test_a=JOINED)
    result = project.runpytest("--collect-only", "-q", "--strict-markers")
    assert collected(result) == ITEMS
    assert result.ret == 0


def test_they_run_and_pass(project: pytest.Pytester) -> None:
    project.makepyfile(test_a=JOINED)
    result = project.runpytest("-rA")
    assert outcome(result) == dict.fromkeys(ITEMS, "PASSED")


@pytest.mark.parametrize(
    ("arguments", "wanted"),
    [
        (("-m", "green"), ITEMS[:1]),
        (("-m", "red"), ITEMS[1:]),
        (("-m", "not red"), ["test_a.py::test_other", *ITEMS[:1]]),
        (("-m", "red or green"), ITEMS),
        (("-k", "wait_event"), [ITEMS[2]]),
        (("-k", "test_joined and not red"), ITEMS[:1]),
        ((ITEMS[2],), [ITEMS[2]]),
        (("test_a.py::test_joined",), ITEMS),
        (("--redgreen-edges", "*/pipeline.py"), ["test_a.py::test_other", *ITEMS]),
        (("--redgreen-edges", "*/other.py"), ["test_a.py::test_other", ITEMS[0]]),
    ],
)
def test_selection(project: pytest.Pytester, arguments: tuple[str, ...], wanted: list[str]) -> None:
    project.makepyfile(test_a=f"def test_other(): pass\n{JOINED}")
    result = project.runpytest("--collect-only", "-q", *arguments)
    assert collected(result) == wanted


SHAPES = """
import asyncio, pipeline, pytest
pytestmark = pytest.mark.redgreen(timeout=50)

@pytest.mark.parametrize("n", [2, pytest.param(3, marks=pytest.mark.slow)])
@pytest.mark.parametrize("function", [pipeline.joined])
def test_parameters(n, function):
    return function(n)

class TestMethods:
    size = 4
    class TestInner:
        def test_method(self):
            assert type(self).__qualname__ == "TestMethods.TestInner"
            return pipeline.joined(TestMethods.size)

class Base:
    def test_inherited(self):
        return pipeline.joined(self.size)

class TestDerived(Base):
    size = 5

async def test_coroutine():
    await asyncio.sleep(0)
    return pipeline.joined()

def test_default(n=3):
    return pipeline.joined(n)
"""


def test_parameters_classes_and_coroutines(project: pytest.Pytester) -> None:
    project.makepyfile(test_a=SHAPES)
    project.makeini("[pytest]\nmarkers = slow: for the test")
    found = outcome(project.runpytest("-rA", "-m", "green and not slow"))
    assert found == dict.fromkeys([
        "test_a.py::test_parameters[joined-2-green]",
        "test_a.py::TestMethods::TestInner::test_method[green]",
        "test_a.py::TestDerived::test_inherited[green]",
        "test_a.py::test_coroutine[green]",
        "test_a.py::test_default[green]",
    ], "PASSED")  # fmt: skip


@pytest.mark.parametrize("mode", ["prepend", "append", "importlib"])
def test_import_modes_and_packages(project: pytest.Pytester, mode: str) -> None:
    project.mkpydir("pack")
    (project.path / "pack" / "helper.py").write_text("from pipeline import joined\n")
    (project.path / "pack" / "test_a.py").write_text(
        "import pytest\nfrom .helper import joined\n"
        "def plain(): return joined()\n"
        "@pytest.mark.redgreen(reference=plain)\n"
        "def test_joined(): return joined()\n"
    )
    found = outcome(project.runpytest("-rA", f"--import-mode={mode}", "-m", "green"))
    assert found == {"pack/test_a.py::test_joined[green]": "PASSED"}


def test_other_marks_work_on_the_items(project: pytest.Pytester) -> None:
    project.makepyfile(
        test_a="""
        import pipeline, pytest
        @pytest.mark.skip(reason="never")
        @pytest.mark.redgreen
        def test_skip(): raise RuntimeError("it ran")
        @pytest.mark.skipif(True, reason="not now")
        @pytest.mark.redgreen
        def test_skipif(): raise RuntimeError("it ran")
        @pytest.mark.skipif("pipeline is None", reason="text")
        @pytest.mark.xfail(reason="racy")
        @pytest.mark.redgreen
        def test_xfail(): return pipeline.racy()
        @pytest.mark.redgreen
        def test_inside(): pytest.skip("for a reason of its own")
        """
    )
    result = project.runpytest("-rA", "-m", "green")
    result.assert_outcomes(skipped=3, xfailed=1)
    result.stdout.fnmatch_lines(["*SKIPPED*never*", "*SKIPPED*for a reason of its own*"])


def test_subjects_leave_other_tests_alone(project: pytest.Pytester) -> None:
    project.makepyfile(test_a=f"{JOINED}\ndef test_plain(): pass\nclass TestA:\n"
                              "    def test_b(self, tmp_path): pass\n")  # fmt: skip
    project.runpytest("-m", "not red and not green").assert_outcomes(passed=2, deselected=4)
