"""Third-party programs whose background threads come under control."""

from __future__ import annotations

import queue
import threading
from typing import Any

from tests.threads.log import Log, watched


def batching_service(log: Log) -> list[Any]:
    """A generation thread: queues with time-outs, a wake-up event, a condition that pauses."""
    requests: queue.Queue[int] = queue.Queue(maxsize=2)
    results: queue.Queue[tuple[int, int]] = queue.Queue()
    wake_up = threading.Event()
    status = threading.Condition()
    state = {"stop": False, "pause": False, "paused": False}

    def generate() -> None:
        while True:
            with status:
                if state["stop"] and requests.empty():
                    return
                if state["pause"]:
                    state["paused"] = True
                    status.notify_all()
                    status.wait_for(lambda: not state["pause"])
                    state["paused"] = False
            try:
                request = requests.get_nowait()
            except queue.Empty:
                wake_up.wait(timeout=0.1)
                wake_up.clear()
                continue
            log.step(("generate", request))
            results.put((request, request * request))

    thread = threading.Thread(target=generate)
    thread.start()
    answers: list[Any] = []
    for request in range(5):
        requests.put(request, timeout=10)
        wake_up.set()
    while len(answers) < 5 and thread.is_alive():
        try:
            answers.append(results.get(timeout=0.1))
        except queue.Empty:
            continue
    with status:
        state["pause"] = True
        wake_up.set()
        assert status.wait_for(lambda: state["paused"], timeout=60)
        log.step("paused")
        state["pause"] = False
        status.notify_all()
    with status:
        state["stop"] = True
    thread.join(timeout=60)
    return [*answers, thread.is_alive()]


def test_a_batching_service() -> None:
    first, answers = watched(batching_service)
    assert answers == [(0, 0), (1, 1), (2, 4), (3, 9), (4, 16), False]
    for _ in range(20):
        assert watched(batching_service)[0].events == first.events
