"""Runs a snippet of a user's program on the CPU and on the virtual GPU, and compares the bytes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import torch

from redgreen.schedule import LAZY, SERIAL
from redgreen.virtual import VirtualGPU
from tests.child import in_child, preload

Snippet = Callable[[str], Any]


def plain(value: Any) -> Any:
    """What two results are compared by: bytes, shape and type of tensors, the rest as it is."""
    if isinstance(value, torch.Tensor):
        host = value.detach().cpu().resolve_conj().contiguous()
        raw = host.reshape(-1).view(torch.uint8).tolist() if host.numel() else []
        return ("tensor", tuple(value.shape), str(value.dtype), raw)
    if isinstance(value, dict):
        return {k: plain(v) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(v) for v in value]
    return value


def difference(got: Any, want: Any, path: str = "") -> str | None:
    """The first place where two outcomes differ."""
    if isinstance(got, list) and isinstance(want, list) and len(got) == len(want):
        pairs = [(f"{path}[{i}]", g, w) for i, (g, w) in enumerate(zip(got, want, strict=True))]
    elif isinstance(got, dict) and isinstance(want, dict) and got.keys() == want.keys():
        pairs = [(f"{path}[{k!r}]", got[k], want[k]) for k in got]
    else:
        same = got == want or (got != got and want != want)
        return None if same else f"at {path or 'the result'}: {got!r:.300} and not {want!r:.300}"
    return next((d for place, g, w in pairs if (d := difference(g, w, place))), None)


def outcome(snippet: Snippet, device: str) -> Any:
    torch.manual_seed(0)
    return plain(snippet(device))


def on_the_gpu(snippet: Snippet) -> list[Any]:
    """The outcome under both schedules; nothing may have been refused on the way."""
    results = []
    for schedule in (SERIAL, LAZY):
        with VirtualGPU(schedule) as virtual:
            results.append(outcome(snippet, "cuda"))
            refusals = virtual.finish().trace.refusals
        assert not refusals, refusals
    return results


def same_as_on_the_cpu(snippet: Snippet) -> None:
    def work() -> tuple[Any, list[Any]]:
        gpu = on_the_gpu(snippet)  # in front: after it the CPU must work as ever
        return copy.deepcopy(outcome(snippet, "cpu")), gpu

    preload()
    expected, (serial, lazy) = in_child(work)
    for schedule, got in (("serial", serial), ("lazy", lazy)):
        found = difference(got, expected)
        assert found is None, f"{schedule}: {found}"


def works(snippet: Snippet) -> None:
    """For what only a GPU has: the snippet asserts by itself."""
    preload()
    serial, lazy = in_child(lambda: on_the_gpu(snippet))
    found = difference(lazy, serial)
    assert found is None, found


def refused(snippet: Snippet, message: str) -> None:
    """One clear error, and the run remembers it even if the program swallows it."""

    def work() -> tuple[str, list[str]]:
        with VirtualGPU() as virtual:
            text = "no error"
            try:
                snippet("cuda")
            except (RuntimeError, NotImplementedError) as error:
                text = str(error)
            return text, virtual.finish().trace.refusals

    preload()
    text, refusals = in_child(work)
    assert message in text, text
    assert refusals, text
