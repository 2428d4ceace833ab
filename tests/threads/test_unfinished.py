"""Host threads that outlive the program: said of those that would go on by themselves."""

from __future__ import annotations

import queue
import threading

import torch

import redgreen


def kinds(function: object) -> set[str]:
    return {d.kind for d in redgreen.prove(function).diagnostics}  # type: ignore[arg-type]


def adds_later(join: bool) -> torch.Tensor:
    x, begun = torch.zeros(4, device="cuda"), threading.Event()

    def work() -> None:
        for _ in range(3):
            x.add_(1)
            begun.set()
            threading.Event().wait(0.01)

    thread = threading.Thread(target=work)
    thread.start()
    begun.wait()
    if join:
        thread.join()
    return x.cpu()


def test_a_thread_that_goes_on() -> None:
    assert "unfinished-thread" in kinds(lambda: adds_later(join=False))
    assert "unfinished-thread" not in kinds(lambda: adds_later(join=True))


def test_a_worker_that_waits_for_work_is_at_its_end() -> None:
    def program() -> torch.Tensor:
        x = torch.zeros(4, device="cuda")
        wanted: queue.Queue[int] = queue.Queue()
        done: queue.Queue[int] = queue.Queue()

        def work() -> None:
            while True:
                x.add_(wanted.get())
                torch.cuda.synchronize()
                done.put(1)

        threading.Thread(target=work, daemon=True).start()
        wanted.put(1)
        done.get()
        return x.cpu()

    assert "unfinished-thread" not in kinds(program)
