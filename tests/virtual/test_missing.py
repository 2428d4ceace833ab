"""The wait that a refuted program lacks: named only if the program is proved with it."""

from __future__ import annotations

from collections.abc import Callable

import torch

import redgreen


def missing(function: Callable[[], object]) -> list[tuple[int, str]]:
    """Lines within the function, and what is said of them."""
    first = function.__code__.co_firstlineno
    found = redgreen.prove(function).diagnostics
    return [(d.line - first, d.message) for d in found if d.kind == "missing-edge"]


def one_wait() -> torch.Tensor:
    side, x = torch.cuda.Stream(), torch.zeros(4, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        y = x + 1
    return y * 2


def test_the_wait_and_its_line() -> None:
    ((line, message),) = missing(one_wait)
    assert line == 5
    assert message.startswith("stream 0 does not wait for stream 1 before this line; with that")


def two_waits() -> torch.Tensor:
    side, x, y = torch.cuda.Stream(), *(torch.zeros(4, device="cuda") for _ in range(2))
    with torch.cuda.stream(side):
        torch.add(x, 1, out=y)
    return y * 2


def test_two_waits_are_named_together() -> None:
    found = missing(two_waits)
    assert [line for line, _ in found] == [3, 4]
    assert all("and the other wait the program is proved" in message for _, message in found)


def a_loop() -> torch.Tensor:
    """One line, three times: the wait is there each time."""
    side, host = torch.cuda.Stream(), torch.zeros(4, pin_memory=True)
    out = torch.zeros(3, 4, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    for i in range(3):
        host.fill_(i)
        with torch.cuda.stream(side):
            out[i].copy_(host, non_blocking=True)
    torch.cuda.current_stream().wait_stream(side)
    return out


def test_the_host_waits_in_each_turn() -> None:
    ((line, message),) = missing(a_loop)
    assert line == 6
    assert message.startswith("the host does not wait for stream 1 before this line")


def not_only_a_race() -> tuple[torch.Tensor, bool]:
    """The answer of the query is part of the output: no wait at the race mends that."""
    side, x = torch.cuda.Stream(), torch.zeros(4, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        x.add_(1)
        event = side.record_event()
    known = event.query()
    return x * 2, known


def test_what_is_not_enough_is_not_named() -> None:
    assert missing(not_only_a_race) == []
