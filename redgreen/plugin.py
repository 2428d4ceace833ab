"""The pytest plugin: a marked test function is a subject, with a GREEN item and RED items.

    @pytest.mark.redgreen(reference=plain, redundant={"engine.py:31 wait_event": "the reason"})
    def test_decode():
        return Engine().decode(PROMPTS)

yields ``test_decode[green]`` and one ``test_decode[red:engine.py:31 wait_event]`` per sync call.
Nothing but this file and `options` is imported until a test is marked or an option is used.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from typing import Any

import pytest

from .pytesting import options

_documents = pytest.StashKey[Any]()  # a documents.Documents, with --redgreen-json


def pytest_addoption(parser: pytest.Parser) -> None:
    options.add(parser)


def pytest_configure(config: pytest.Config) -> None:
    from .pytesting.mark import REGISTERED

    for line in REGISTERED:
        config.addinivalue_line("markers", line)
    options.read(config)
    if _is_worker(config):
        return
    token, path = config.getoption("redgreen_replay"), config.getoption("redgreen_json")
    if token is not None:
        _check_token(token)
    if path is not None:
        from .pytesting.documents import Documents

        config.stash[_documents] = Documents(path)


def _check_token(text: str) -> None:
    from .token import NotApplicable, decode

    try:
        decode(text)
    except NotApplicable as error:
        raise pytest.UsageError(f"--redgreen-replay: {error}") from None


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """xdist: all workers share the controller's session."""
    from .pytesting import session

    node.workerinput[session.WORKER_INPUT] = str(session.of(node.config).folder)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # outermost: other plugins may exchange the items
def pytest_pycollect_makeitem() -> Generator[None, Any, Any]:
    result = yield
    if not result:
        return result
    made = result if isinstance(result, list) else [result]
    if not any(isinstance(one, pytest.Function) and _marked(one) for one in made):
        return result
    from .pytesting.items import expand

    return [item for one in made
            for item in (expand(one) if isinstance(one, pytest.Function) and _marked(one)
                         else [one])]


def _marked(item: pytest.Item) -> bool:
    return item.get_closest_marker("redgreen") is not None


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """A token selects its subject and nothing else."""
    if config.getoption("redgreen_replay") is None:
        return
    chosen = [item for item in items if item.name.endswith(("[replay]", "-replay]"))]
    config.hook.pytest_deselected(items=[item for item in items if item not in chosen])
    items[:] = chosen
    if not chosen and not _is_worker(config):
        raise pytest.UsageError(_no_subject(config.getoption("redgreen_replay")))


def _no_subject(token: str) -> str:
    from .token import decode

    program = decode(token).program
    return f"--redgreen-replay: token not applicable: no collected subject is {program}"


def pytest_collection_finish(session: pytest.Session) -> None:
    if options.SESSION in session.config.stash:
        here = session.config.stash[options.SESSION]
        from .pytesting.decision import Red
        from .pytesting.items import ClaimItem

        here.with_edges |= {item.subject.node for item in session.items
                            if isinstance(item, ClaimItem) and isinstance(item.claim, Red)}


def pytest_runtest_setup(item: pytest.Item) -> None:
    if _marked(item):
        from .pytesting.items import SubjectItem, unproved

        if not isinstance(item, SubjectItem):
            pytest.fail(unproved(item), pytrace=False)


@pytest.hookimpl(trylast=True)
def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    config = terminalreporter.config
    if not _any_subject(terminalreporter) and not any(
        config.getoption(f"redgreen_{name}") for name in ("json", "replay")
    ):
        return
    from .pytesting import summary

    lines = summary.table(summary.rows(terminalreporter.stats))
    lines += [line for text in summary.replays(terminalreporter.stats)
              for line in text.splitlines()]
    if config.getoption("redgreen_replay") and not terminalreporter.stats:  # xdist
        lines.append(_no_subject(config.getoption("redgreen_replay")))
    if _documents in config.stash:
        here = config.stash.get(options.SESSION, None)
        written = config.stash[_documents].write(here.proofs() if here else [])
        lines.append(f"--redgreen-json {config.getoption('redgreen_json')}: {written}")
    terminalreporter.section("redgreen")
    for line in lines:
        terminalreporter.write_line(line)


def _any_subject(terminalreporter: pytest.TerminalReporter) -> bool:
    return any(name.startswith("redgreen_") for reports in terminalreporter.stats.values()
               for report in reports for name, _ in getattr(report, "user_properties", ()))


def pytest_unconfigure(config: pytest.Config) -> None:
    if options.SESSION in config.stash:
        config.stash[options.SESSION].end()


@pytest.fixture
def virtual_gpu() -> Iterator[Any]:
    """The test runs with ``torch.cuda`` being a virtual GPU, which this is, in serial order.

    Device tensors do not outlive the test. An operator that the virtual GPU refused fails it, even
    if the program swallowed the error.
    """
    from .api import installed

    with installed() as gpu:
        yield gpu
        refusals = gpu.finish().trace.refusals
    if refusals:
        pytest.fail(f"the virtual GPU refused: {refusals[0]}", pytrace=False)
