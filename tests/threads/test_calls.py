"""What the calls of several threads decide, and what is one call."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable

import torch

import redgreen

from .bodies import in_threads

N = 4


def launched() -> torch.Tensor:
    """One thread replays ``a += 1; b = a``, another one clears ``a``, on one stream."""
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    a, b = torch.full((N,), 5.0, device="cuda"), torch.zeros(N, device="cuda")
    with torch.cuda.graph(graph, stream=side):
        a.add_(1)
        b.copy_(a)
    torch.cuda.synchronize()

    def on_side(call: Callable[[], object]) -> None:
        with torch.cuda.stream(side):
            call()

    in_threads(lambda: on_side(graph.replay), lambda: on_side(a.zero_))
    torch.cuda.synchronize()
    return torch.stack([a, b])


def test_the_launch_of_a_graph_is_one_call() -> None:
    """(0, 6) or (1, 1); never (0, 0), which takes the clearing between the nodes."""
    green = redgreen.prove(launched).green
    assert (green.verdict, green.outcomes, green.scope) == ("refuted", 2, "explored host orders")


def launched_twice() -> torch.Tensor:
    side, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    a = torch.ones(N, device="cuda")
    with torch.cuda.graph(graph, stream=side):
        a.mul_(2)
        a.add_(1)
    torch.cuda.synchronize()

    def replay() -> None:
        with torch.cuda.stream(side):
            graph.replay()

    in_threads(replay, replay)
    torch.cuda.synchronize()
    return a


def test_launches_of_two_threads_do_not_mix() -> None:
    green = redgreen.prove(launched_twice).green
    assert (green.verdict, green.outcomes, green.scope) == ("proved", 1, "explored host orders")


def replaced() -> torch.Tensor:
    """The wait finds the first record, or the one that the other thread makes."""
    first, second, third = (torch.cuda.Stream() for _ in range(3))
    a, event = torch.zeros(N, device="cuda"), torch.cuda.Event()
    out = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(first):
        a.fill_(1)
    event.record(first)

    def read() -> None:
        second.wait_event(event)
        with torch.cuda.stream(second):
            out.copy_(a)

    in_threads(read, lambda: event.record(third))
    torch.cuda.synchronize()
    return out


def test_a_record_of_another_thread_may_replace_the_one_that_is_waited_for() -> None:
    proof = redgreen.prove(replaced)
    assert (proof.green.verdict, proof.green.outcomes) == ("refuted", 2)
    (race,) = proof.green.races
    assert race.hazard == "RAW" and race.changes_output


def covered() -> torch.Tensor:
    """Two threads make the same wait; the read is behind the one of its own thread for sure."""
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    a, event = torch.zeros(N, device="cuda"), torch.cuda.Event()
    out = torch.zeros(N, device="cuda")
    torch.cuda.synchronize()
    with torch.cuda.stream(first):
        a.fill_(1)
    event.record(first)

    def read() -> None:
        second.wait_event(event)  # mine
        with torch.cuda.stream(second):
            out.copy_(a)

    in_threads(lambda: second.wait_event(event), read)
    torch.cuda.synchronize()
    return out


def test_the_wait_of_another_thread_covers_nothing() -> None:
    proof = redgreen.prove(covered)
    assert (proof.green.verdict, proof.green.scope) == ("proved", "explored host orders")
    waits = {edge.code.rpartition("# ")[2]: edge.verdict
             for edge in proof.edges if edge.kind == "wait_event"}
    assert waits == {
        "mine": "load-bearing",
        "in_threads(lambda: second.wait_event(event), read)": "redundant",
    }


def taken(ordered: bool) -> Callable[[], torch.Tensor]:
    """One thread frees what a stream may still read; the other one waits, and takes the block."""

    def program() -> torch.Tensor:
        side, event = torch.cuda.Stream(), torch.cuda.Event()
        out, done = torch.zeros(N, device="cuda"), queue.Queue[None]()
        lent = [torch.ones(N, device="cuda")]
        torch.cuda.synchronize()

        def read() -> None:
            with torch.cuda.stream(side):
                out.copy_(lent[0])
            event.record(side)
            lent.clear()
            if ordered:
                done.put(None)

        def take() -> None:
            if ordered:
                done.get()
            torch.cuda.current_stream().wait_event(event)
            torch.empty(N, device="cuda").fill_(7)

        in_threads(read, take)
        torch.cuda.synchronize()
        return out

    return program


def test_a_wait_that_may_come_before_the_record_guards_no_reuse() -> None:
    """With the wait before the record the block could be taken too early. No schedule of ours can
    keep an allocation back, so that order is not explored, and the scope says so."""
    assert redgreen.prove(taken(True)).green.scope == "explored host orders"
    assert redgreen.prove(taken(False)).green.scope == "recorded host order"


def lent_to_a_stream(joined: bool) -> Callable[[], torch.Tensor]:
    """A thread frees memory that its stream still reads; the other one allocates before that, by
    luck or because it has joined."""

    def program() -> torch.Tensor:
        side, out = torch.cuda.Stream(), torch.zeros(N, device="cuda")
        lent = [torch.ones(N, device="cuda")]
        torch.cuda.synchronize()
        made, go = torch.full((N,), 7.0, device="cuda") if joined else None, queue.Queue[None]()

        def read() -> None:
            go.get()
            with torch.cuda.stream(side):
                out.copy_(lent[0])
            lent.clear()

        thread = threading.Thread(target=read)
        thread.start()
        go.put(None)
        if not joined:
            made = torch.full((N,), 7.0, device="cuda")
        thread.join()
        torch.cuda.synchronize()
        assert made is not None
        return out + made

    return program


def test_an_allocation_before_another_threads_unsafe_free() -> None:
    assert redgreen.prove(lent_to_a_stream(True)).green.scope == "explored host orders"
    proof = redgreen.prove(lent_to_a_stream(False))
    assert (proof.green.verdict, proof.green.scope) == ("proved", "recorded host order")


def freed_after_a_sync() -> torch.Tensor:
    """Who takes the block comes after who freed it, whoever that is."""
    side, out = torch.cuda.Stream(), torch.zeros(N, device="cuda")
    lent = [torch.ones(N, device="cuda")]
    torch.cuda.synchronize()

    def read() -> None:
        with torch.cuda.stream(side):
            out.copy_(lent[0])
        side.synchronize()
        lent.clear()

    in_threads(read, lambda: torch.empty(N, device="cuda").fill_(7))
    torch.cuda.synchronize()
    return out


def test_memory_is_handed_out_under_a_lock() -> None:
    green = redgreen.prove(freed_after_a_sync).green
    assert (green.verdict, green.races, green.scope) == ("proved", (), "explored host orders")
