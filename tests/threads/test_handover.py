"""What queues, semaphores, events and futures promise; their locks promise nothing more."""

from __future__ import annotations

import logging
import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor

import pytest
import torch

import redgreen

from .bodies import in_threads

N = 8
Program = Callable[[], object]


def upload(host: torch.Tensor, value: float) -> torch.cuda.Event:
    """``host`` gets the value, some time; the event is done then."""
    stream, event = torch.cuda.Stream(), torch.cuda.Event()
    with torch.cuda.stream(stream):
        host.copy_(torch.full((N,), value, device="cuda"), non_blocking=True)
        event.record()
    return event


def acknowledging(early: bool, make: Callable[[], queue.Queue[int]]) -> Program:
    """The reader gives a buffer back for the next copy: before it has read it, or after that."""

    def program() -> torch.Tensor:
        pinned = [torch.zeros(N, pin_memory=True) for _ in range(2)]
        free, full, seen = make(), queue.Queue[int](), []
        for slot in range(2):
            free.put(slot)

        def read() -> None:
            for _ in range(3):
                slot = full.get()
                if early:
                    free.put(slot)
                seen.append(pinned[slot].sum())
                if not early:
                    free.put(slot)

        def write() -> None:
            for step in range(3):
                slot = free.get()
                upload(pinned[slot], step + 1.0).synchronize()
                full.put(slot)

        in_threads(read, write)
        return torch.stack(seen)

    return program


MAKES: dict[str, Callable[[], queue.Queue[int]]] = {  # not the classes: they are exchanged
    "queue": lambda: queue.Queue(),
    "bounded": lambda: queue.Queue(5),
    "simple": lambda: queue.SimpleQueue(),  # type: ignore[return-value,dict-item]
}


@pytest.mark.parametrize("make", MAKES.values(), ids=MAKES)
def test_who_gets_an_item_comes_after_its_put_alone(make: Callable[[], queue.Queue[int]]) -> None:
    assert redgreen.prove(acknowledging(True, make)).green.verdict == "refuted"
    proof = redgreen.prove(acknowledging(False, make))
    assert (proof.green.verdict, proof.green.scope) == ("proved", "explored host orders")


def bounded(places: int) -> Program:
    """A queue counts who may write: a place is taken before writing and left after reading."""

    def program() -> torch.Tensor:
        pinned, seen = torch.zeros(N, pin_memory=True), []
        places_, full = queue.Queue[None](places), queue.Queue[None]()

        def write() -> None:
            for step in range(3):
                places_.put(None)
                upload(pinned, step + 1.0).synchronize()
                full.put(None)

        def read() -> None:
            for _ in range(3):
                full.get()
                seen.append(pinned.clone())
                places_.get()

        in_threads(write, read)
        return torch.stack(seen)

    return program


def test_a_place_is_left_before_it_is_taken_again() -> None:
    assert redgreen.prove(bounded(1)).green.verdict == "proved"
    assert redgreen.prove(bounded(2)).green.verdict == "refuted"


def counted(permits: int) -> Program:
    """Two threads release when their copy is there; both buffers are read after some permits."""

    def program() -> torch.Tensor:
        pinned = [torch.zeros(N, pin_memory=True) for _ in range(2)]
        ready = threading.Semaphore(0)

        def work(slot: int) -> None:
            upload(pinned[slot], 5).synchronize()
            ready.release()

        threads = [threading.Thread(target=work, args=(slot,)) for slot in range(2)]
        for thread in threads:
            thread.start()
        for _ in range(permits):
            ready.acquire()
        seen = torch.stack(pinned)
        for thread in threads:
            thread.join()
        return seen

    return program


def test_a_permit_is_one_release() -> None:
    assert redgreen.prove(counted(1)).green.verdict == "refuted"
    assert redgreen.prove(counted(2)).green.verdict == "proved"


def flagged(late: bool) -> Program:
    """``set`` comes after the copy is there, or is made again after that."""

    def program() -> torch.Tensor:
        pinned, ready = torch.zeros(N, pin_memory=True), threading.Event()

        def work() -> None:
            event = upload(pinned, 5)
            if late:
                ready.set()
            event.synchronize()
            ready.set()

        thread = threading.Thread(target=work)
        thread.start()
        ready.wait()
        seen = pinned.clone()
        thread.join()
        return seen

    return program


def test_who_sees_a_flag_comes_after_the_first_who_set_it() -> None:
    assert redgreen.prove(flagged(True)).green.verdict == "refuted"
    assert redgreen.prove(flagged(False)).green.verdict == "proved"


def resulting(late: bool) -> Program:
    """A worker waits for the copy before its result is set, or afterwards."""

    def program() -> torch.Tensor:
        pinned, result = torch.zeros(N, pin_memory=True), Future[None]()

        def work() -> None:
            event = upload(pinned, 5)
            if late:
                result.set_result(None)
            event.synchronize()
            if not late:
                result.set_result(None)
            result.done()

        thread = threading.Thread(target=work)
        thread.start()
        result.result()
        seen = pinned.clone()
        thread.join()
        return seen

    return program


def test_who_has_a_result_comes_after_who_set_it() -> None:
    assert redgreen.prove(resulting(True)).green.verdict == "refuted"
    assert redgreen.prove(resulting(False)).green.verdict == "proved"


def pooled() -> torch.Tensor:
    """Each task waits for its copy; the results are read as they come."""
    pinned = [torch.zeros(N, pin_memory=True) for _ in range(3)]
    with ThreadPoolExecutor(2) as pool:
        tasks = [pool.submit(lambda slot=slot: upload(pinned[slot], slot).synchronize())
                 for slot in range(3)]  # type: ignore[misc]
        return torch.stack([task.result() or pinned[slot].clone()
                            for slot, task in enumerate(tasks)])


def test_the_tasks_of_a_pool() -> None:
    assert redgreen.prove(pooled).green.verdict == "proved"


def logging_between(joined: bool) -> Program:
    """Both threads log; the reader joins the other one too late, or in time."""

    def program() -> torch.Tensor:
        pinned, log = torch.zeros(N, pin_memory=True), logging.getLogger("redgreen.test")
        log.handlers, log.propagate = [logging.NullHandler(), logging.StreamHandler()], False

        def work() -> None:
            upload(pinned, 5).synchronize()
            log.warning("there")

        thread = threading.Thread(target=work)
        thread.start()
        if joined:
            thread.join()
        log.warning("reading")
        seen = pinned.clone()
        thread.join()
        return seen

    return program


def test_to_log_something_orders_nothing() -> None:
    assert redgreen.prove(logging_between(False)).green.verdict == "refuted"
    assert redgreen.prove(logging_between(True)).green.verdict == "proved"


def waited_for() -> torch.Tensor:
    """``join`` of a queue returns when all tasks are done."""
    pinned, tasks = torch.zeros(2, N, pin_memory=True), queue.Queue[int]()

    def work() -> None:
        for _ in range(2):
            slot = tasks.get()
            upload(pinned[slot], slot + 1.0).synchronize()
            tasks.task_done()

    thread = threading.Thread(target=work)
    thread.start()
    for slot in range(2):
        tasks.put(slot)
    tasks.join()
    seen = pinned.clone()
    thread.join()
    return seen


def test_join_of_a_queue_comes_after_all_tasks() -> None:
    assert redgreen.prove(waited_for).green.verdict == "proved"
