"""A worker copies to or from pinned memory and tells main; does it wait before that, or after?

While the worker waits for the device, main goes on: a wait that comes after the word was given
orders nothing of what main does. Each program takes ``late``: with it, the wait is on the wrong
side.
"""

import queue
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import torch

N = 4
SPIN = 1_000_000


def right(*_: object) -> list[float]:
    return [7.0] * N


def right_twice(*_: object) -> list[list[float]]:
    return [[7.0] * N] * 2


def right_items(*_: object) -> list[list[float]]:
    return [[1.0] * N, [2.0] * N]


def right_upload(*_: object) -> torch.Tensor:
    return torch.full((N,), 7.0)


def by_event(late: bool) -> list[float]:
    side = torch.cuda.Stream()
    host = torch.zeros(N, pin_memory=True)  # buffer
    ready = threading.Event()

    def work() -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            host.copy_(torch.full((N,), 7.0, device="cuda"), non_blocking=True)  # first
        if not late:
            side.synchronize()  # edge early: load-bearing
        ready.set()
        side.synchronize()  # edge late: redundant

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    got = host.tolist()  # second
    thread.join()
    return got


def by_timed_wait(late: bool) -> list[float]:
    side = torch.cuda.Stream()
    host = torch.zeros(N, pin_memory=True)  # buffer
    ready = threading.Event()

    def work() -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            host.copy_(torch.full((N,), 7.0, device="cuda"), non_blocking=True)  # first
        if not late:
            side.synchronize()  # edge early: load-bearing
        ready.set()
        side.synchronize()  # edge late: redundant

    thread = threading.Thread(target=work)
    thread.start()
    while not ready.wait(timeout=0.01):
        pass
    got = host.tolist()  # second
    thread.join()
    return got


def by_condition(late: bool) -> list[float]:
    side = torch.cuda.Stream()
    host = torch.zeros(N, pin_memory=True)  # buffer
    changed = threading.Condition()
    done: list[int] = []

    def work() -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            host.copy_(torch.full((N,), 7.0, device="cuda"), non_blocking=True)  # first
        if not late:
            torch.cuda.synchronize()  # edge early: load-bearing
        with changed:
            done.append(1)
            changed.notify()
        torch.cuda.synchronize()  # edge late: redundant

    thread = threading.Thread(target=work)
    thread.start()
    with changed:
        changed.wait_for(lambda: done)
    got = host.tolist()  # second
    thread.join()
    return got


def by_barrier(late: bool) -> list[float]:
    side = torch.cuda.Stream()
    host = torch.zeros(N, pin_memory=True)  # buffer
    meet = threading.Barrier(2)

    def work() -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            host.copy_(torch.full((N,), 7.0, device="cuda"), non_blocking=True)  # first
            copied = side.record_event()  # edge record: any
        if not late:
            copied.synchronize()  # edge early: load-bearing
        meet.wait()
        copied.synchronize()  # edge late: redundant

    thread = threading.Thread(target=work)
    thread.start()
    meet.wait()
    got = host.tolist()  # second
    thread.join()
    return got


def by_future(late: bool) -> list[float]:
    side = torch.cuda.Stream()
    host = torch.zeros(N, pin_memory=True)  # buffer
    started: queue.Queue[int] = queue.Queue()

    def work() -> int:
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            host.copy_(torch.full((N,), 7.0, device="cuda"), non_blocking=True)  # first
        started.put(1)
        side.synchronize()  # edge: any
        return 1

    with ThreadPoolExecutor(2) as pool:
        future = pool.submit(work)
        started.get()
        if late:
            got = host.tolist()  # second
            future.result()
        else:
            future.result()
            got = host.tolist()
    return got


def by_item(late: bool) -> list[float]:
    """The late wait is one that nobody wrote."""
    side = torch.cuda.Stream()
    host = torch.zeros(N, pin_memory=True)  # buffer
    ready = threading.Event()

    def work() -> None:
        with torch.cuda.stream(side):
            device = torch.full((N,), 7.0, device="cuda")
            host.copy_(device, non_blocking=True)  # first
            if not late:
                device.sum().item()
            ready.set()
            device.sum().item()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    got = host.tolist()  # second
    thread.join()
    return got


def by_blocking_copy(late: bool) -> list[float]:
    side = torch.cuda.Stream()
    host = torch.zeros(N, pin_memory=True)  # buffer
    ready = threading.Event()

    def work() -> None:
        with torch.cuda.stream(side):
            device = torch.full((N,), 7.0, device="cuda")
            host.copy_(device, non_blocking=True)  # first
            if not late:
                device.cpu()
            ready.set()
            device.cpu()

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    got = host.tolist()  # second
    thread.join()
    return got


def by_sleep() -> list[float]:
    """Main gives the worker time; the device may take longer."""
    side = torch.cuda.Stream()
    host = torch.zeros(N, pin_memory=True)  # buffer

    def work() -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            host.copy_(torch.full((N,), 7.0, device="cuda"), non_blocking=True)  # first
        side.synchronize()  # edge: redundant

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.1)
    got = host.tolist()  # second
    thread.join()
    return got


def by_flag() -> list[float]:
    """Main polls a flag that comes after the wait."""
    side = torch.cuda.Stream()
    host = torch.zeros(N, pin_memory=True)
    done = threading.Event()

    def work() -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            host.copy_(torch.full((N,), 7.0, device="cuda"), non_blocking=True)
        side.synchronize()  # edge: load-bearing
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    while not done.is_set():
        time.sleep(0.01)
    got = host.tolist()
    thread.join()
    return got


def by_query() -> list[float]:
    """Main polls an event, but that of the record before the copy."""
    side = torch.cuda.Stream()
    host = torch.zeros(N, pin_memory=True)  # buffer
    started: queue.Queue[torch.cuda.Event] = queue.Queue()

    def work() -> None:
        with torch.cuda.stream(side):
            device = torch.full((N,), 7.0, device="cuda")
            filled = side.record_event()  # edge: any
            host.copy_(device, non_blocking=True)  # first
        started.put(filled)
        side.synchronize()  # edge: redundant

    thread = threading.Thread(target=work)
    thread.start()
    filled = started.get()
    while not filled.query():
        time.sleep(0.001)
    got = host.tolist()  # second
    thread.join()
    return got


def two_workers(late: bool) -> list[list[float]]:
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    hosts = [torch.zeros(N, pin_memory=True) for _ in streams]  # buffer
    ready = [threading.Event() for _ in streams]

    def work(side: torch.cuda.Stream, host: torch.Tensor, ready: threading.Event) -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            host.copy_(torch.full((N,), 7.0, device="cuda"), non_blocking=True)  # first
        if not late:
            side.synchronize()  # edge early: load-bearing
        ready.set()
        side.synchronize()  # edge late: redundant

    threads = [
        threading.Thread(target=work, args=args) for args in zip(streams, hosts, ready, strict=True)
    ]
    for thread in threads:
        thread.start()
    for event in ready:
        event.wait()
    got = [host.tolist() for host in hosts]  # second
    for thread in threads:
        thread.join()
    return got


def queue_of_events(awaited: bool) -> list[list[float]]:
    """The consumer waits for each item's event; that the producer waits as well is too late."""
    side = torch.cuda.Stream()
    items: queue.Queue[tuple[torch.Tensor, torch.cuda.Event]] = queue.Queue()

    def produce() -> None:
        with torch.cuda.stream(side):
            for i in range(2):
                host = torch.zeros(N, pin_memory=True)  # buffer
                device = torch.full((N,), i + 1.0, device="cuda")
                host.copy_(device, non_blocking=True)  # first
                items.put((host, side.record_event()))  # edge record: load-bearing
                side.synchronize()  # edge late: redundant

    thread = threading.Thread(target=produce)
    thread.start()
    got = []
    for _ in range(2):
        host, copied = items.get()
        if awaited:
            copied.synchronize()  # edge wait: load-bearing
        got.append(host.tolist())  # second
    thread.join()
    return got


def upload(late: bool) -> torch.Tensor:
    """Main fills the source anew."""
    side = torch.cuda.Stream()
    host = torch.full((N,), 7.0, pin_memory=True)  # buffer
    ready = threading.Event()
    made: list[torch.Tensor] = []

    def work() -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            made.append(host.to("cuda", non_blocking=True))  # first
        if not late:
            side.synchronize()  # edge early: load-bearing
        ready.set()
        side.synchronize()  # edge late: any

    thread = threading.Thread(target=work)
    thread.start()
    ready.wait()
    host.fill_(9.0)  # second
    thread.join()
    return made[0]


def nobody_told() -> torch.Tensor:
    """The recorded order has main's write first, and nothing fixes that."""
    side = torch.cuda.Stream()
    host = torch.full((N,), 7.0, pin_memory=True)  # buffer
    made: list[torch.Tensor] = []

    def work() -> None:
        with torch.cuda.stream(side):
            made.append(host.to("cuda", non_blocking=True))  # first; second
        side.synchronize()  # edge: load-bearing

    thread = threading.Thread(target=work)
    thread.start()
    host.fill_(9.0)  # first; second
    thread.join()
    return made[0]
