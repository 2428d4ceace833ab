"""Every test that asks for ``gpu`` runs on that device, if virtual in a forked child.

A context on a real GPU takes seconds, and a kernel that is first loaded under a gate would block
the host: all tests there share the worker's context, with modules loaded at once. What breaks a
context, or needs an allocator that nobody has used, has a process of its own (``own_process``).
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from contextlib import nullcontext
from functools import partial
from multiprocessing import get_context
from typing import Any

import pytest

from tests.child import in_child, preload
from tests.conformance import device
from tests.conformance.device import MODES

device.prepare_environment()


@pytest.fixture(
    params=[
        "virtual",
        "virtual-lazy",
        pytest.param("cuda", marks=pytest.mark.cuda),
    ]
)
def gpu(request: pytest.FixtureRequest) -> str:
    """The device's name here; the test itself, in its child, gets the ``Device``."""
    kind: str = request.param
    reason = device.why_no_cuda() if kind == "cuda" else None
    if reason is not None:
        pytest.skip(reason)
    if kind != "cuda":
        preload()
    return kind


@pytest.fixture(params=list(MODES))
def mode(request: pytest.FixtureRequest) -> str:
    """The test runs with autograd off, in inference mode and with autograd on."""
    name: str = request.param
    return name


# What a run without --slow takes of the six combinations of schedule and mode. Lazily, with
# autograd on, all comes late and is recorded; inference mode decomposes operators differently.
TAKEN = [("virtual-lazy", "grad"), ("virtual-lazy", "inference_mode"), ("virtual", "no_grad")]


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "own_process: on a real GPU, not in a context with others")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Fewer combinations by default, never fewer tests; on a real GPU all of them."""
    if config.getoption("slow"):
        return
    cases: dict[str, list[object]] = {}  # by function: what else it is parametrised with
    for item in items:
        if not isinstance(item, pytest.Function) or not hasattr(item, "callspec"):
            continue
        params = dict(item.callspec.params)
        kind, mode = params.pop("gpu", None), params.pop("mode", None)
        if kind not in ("virtual", "virtual-lazy") or mode is None:
            continue
        seen = cases.setdefault(item.originalname, [])
        if params not in seen:
            seen.append(params)
        # The cases of a function take turns, so that each combination has some of them.
        if (kind, mode) not in TAKEN or (params and TAKEN[seen.index(params) % 3] != (kind, mode)):
            item.add_marker(pytest.mark.skip("more schedules and autograd modes: use --slow"))


def run(test: Callable[..., object], kind: str, **arguments: Any) -> None:
    """Run a test function on the device of that name, in this process."""
    break_rule = arguments.pop("break_rule", 0)
    name = arguments.get("mode")
    with device.entered(kind, break_rule) as gpu, MODES[name]() if name else nullcontext():
        test(gpu=gpu, **arguments)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    names = pyfuncitem._fixtureinfo.argnames
    if "gpu" not in names:
        return None
    arguments = {name: pyfuncitem.funcargs[name] for name in names}
    kind = arguments.pop("gpu")
    work = partial(run, pyfuncitem.obj, kind, **arguments)
    if kind != "cuda":
        in_child(work)
    elif pyfuncitem.get_closest_marker("own_process"):
        with ProcessPoolExecutor(1, get_context("spawn")) as alone:  # a fork cannot use CUDA again
            alone.submit(work).result()
    else:
        work()
    return True
