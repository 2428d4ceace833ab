"""Threads enqueue on one stream, or record and wait: is the order of their calls fixed?"""

import queue
import threading
import time
from collections.abc import Callable

import torch

N = 4
SPIN = 1_000_000


def right() -> torch.Tensor:
    return torch.full((N,), 2.0)


def right_rows() -> torch.Tensor:
    return torch.stack([torch.full((N,), 1.0), torch.full((N,), 2.0)])


def _in_threads(*bodies: Callable[[], object]) -> None:
    threads = [threading.Thread(target=body) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def unordered() -> torch.Tensor:
    """Whoever is last decides."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        device = torch.zeros(N, device="cuda")

    def one() -> None:
        with torch.cuda.stream(side):
            device.fill_(1.0)  # first

    def two() -> None:
        with torch.cuda.stream(side):
            device.fill_(2.0)  # second

    _in_threads(one, two)
    torch.cuda.current_stream().wait_stream(side)  # edge: load-bearing
    return device


def ordered() -> torch.Tensor:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        device = torch.zeros(N, device="cuda")
    done: queue.Queue[None] = queue.Queue()

    def one() -> None:
        with torch.cuda.stream(side):
            device.fill_(1.0)
        done.put(None)

    def two() -> None:
        done.get()
        with torch.cuda.stream(side):
            device.fill_(2.0)

    _in_threads(two, one)
    torch.cuda.current_stream().wait_stream(side)  # edge: load-bearing
    return device


def in_any_order() -> torch.Tensor:
    """Three threads add: six orders, one sum."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        device = torch.full((N,), -4.0, device="cuda")

    def add(what: float) -> None:
        with torch.cuda.stream(side):
            device.add_(what)

    _in_threads(lambda: add(1.0), lambda: add(2.0), lambda: add(3.0))
    torch.cuda.current_stream().wait_stream(side)  # edge: load-bearing
    return device


def who_has_the_lock() -> torch.Tensor:
    """The lock makes it one or the other; which one is as recorded."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        device = torch.zeros(N, device="cuda")
    lock = threading.Lock()

    def fill(what: float) -> None:
        with lock, torch.cuda.stream(side):
            device.fill_(what)

    _in_threads(lambda: fill(1.0), lambda: fill(2.0))
    torch.cuda.current_stream().wait_stream(side)  # edge: load-bearing
    return device


def by_flag() -> torch.Tensor:
    """A flag that the other thread looks at orders them, though nothing that redgreen knows of."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        device = torch.zeros(N, device="cuda")
    done: list[bool] = []

    def one() -> None:
        with torch.cuda.stream(side):
            device.fill_(1.0)
        done.append(True)

    def two() -> None:
        while not done:
            time.sleep(0.01)
        with torch.cuda.stream(side):
            device.fill_(2.0)  # diag: host-order

    _in_threads(one, two)
    torch.cuda.current_stream().wait_stream(side)  # edge: load-bearing
    return device


def by_time() -> torch.Tensor:
    """Seconds apart. That is no order, but nobody is kept back so long that time-outs run out."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        device = torch.zeros(N, device="cuda")
    done: queue.Queue[None] = queue.Queue()

    def one() -> None:
        with torch.cuda.stream(side):
            device.fill_(1.0)
        done.put(None)

    def two() -> None:
        time.sleep(5)
        with torch.cuda.stream(side):
            device.fill_(2.0)  # diag: host-order

    threads = [threading.Thread(target=body) for body in (one, two)]
    for thread in threads:
        thread.start()
    done.get(timeout=2)
    for thread in threads:
        thread.join()
    torch.cuda.current_stream().wait_stream(side)  # edge: load-bearing
    return device


def disjoint() -> torch.Tensor:
    """No order, but no bytes in common either."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        device = torch.zeros(2, N, device="cuda")

    def one() -> None:
        with torch.cuda.stream(side):
            device[0].fill_(1.0)

    def two() -> None:
        with torch.cuda.stream(side):
            device[1].fill_(2.0)

    _in_threads(one, two)
    torch.cuda.current_stream().wait_stream(side)  # edge: load-bearing
    return device


def each_its_own() -> torch.Tensor:
    """The second thread's tensor takes the block that the first one freed."""
    made: list[torch.Tensor] = []

    def one() -> None:
        torch.full((N,), 1.0, device="cuda").add_(1)

    def two() -> None:
        made.append(torch.full((N,), 2.0, device="cuda"))

    _in_threads(one, two)
    host = torch.empty(N, pin_memory=True)
    host.copy_(made[0], non_blocking=True)
    torch.cuda.synchronize()  # edge: load-bearing
    return host


def wait_may_be_early() -> torch.Tensor:
    """The wait finds the record only because that thread ran first."""
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        device = torch.full((N,), 1.0, device="cuda")
    second.wait_stream(first)  # edge: any
    written = torch.cuda.Event()
    made: list[torch.Tensor] = []

    def write() -> None:
        with torch.cuda.stream(first):
            torch.cuda._sleep(SPIN)
            device.fill_(2.0)  # first
            written.record()  # edge: any

    def read() -> None:
        with torch.cuda.stream(second):
            second.wait_event(written)  # edge: any; diag: wait-on-unrecorded-event
            made.append(device.clone())  # second

    _in_threads(write, read)
    torch.cuda.synchronize()  # edge: load-bearing
    return made[0]


def wait_after_record() -> torch.Tensor:
    first, second = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(first):
        device = torch.full((N,), 1.0, device="cuda")
    second.wait_stream(first)  # edge: any
    made: list[torch.Tensor] = []
    records: queue.Queue[torch.cuda.Event] = queue.Queue()

    def write() -> None:
        with torch.cuda.stream(first):
            torch.cuda._sleep(SPIN)
            device.fill_(2.0)
            records.put(first.record_event())  # edge: load-bearing

    def read() -> None:
        with torch.cuda.stream(second):
            second.wait_event(records.get())  # edge: load-bearing
            made.append(device.clone())

    _in_threads(read, write)
    torch.cuda.synchronize()  # edge: load-bearing
    return made[0]


def put_before_record() -> torch.Tensor:
    """The other thread is told too early: the event may not have been recorded yet."""
    side, written = torch.cuda.Stream(), torch.cuda.Event()
    device = torch.ones(N, device="cuda")
    torch.cuda.synchronize()  # edge: any
    told: queue.Queue[None] = queue.Queue()

    def write() -> None:
        with torch.cuda.stream(side):
            torch.cuda._sleep(SPIN)
            device.add_(1)  # first
            told.put(None)
            written.record()  # edge: any

    thread = threading.Thread(target=write)
    thread.start()
    told.get()
    torch.cuda.current_stream().wait_event(written)  # edge: any; diag: wait-on-unrecorded-event
    made = device.clone()  # second
    thread.join()
    return made


def set_before_record() -> torch.Tensor:
    """The same with a flag of threading and a host sync, for a pinned buffer."""
    side, written = torch.cuda.Stream(), torch.cuda.Event()
    device, host = torch.full((N,), 2.0, device="cuda"), torch.zeros(N, pin_memory=True)
    torch.cuda.synchronize()  # edge: any
    told = threading.Event()

    def write() -> None:
        with torch.cuda.stream(side):
            host.copy_(device, non_blocking=True)  # first
            told.set()
            written.record()  # edge: any

    thread = threading.Thread(target=write)
    thread.start()
    told.wait()
    written.synchronize()  # edge: any; diag: wait-on-unrecorded-event
    made = host.clone()  # second
    thread.join()
    return made


def device_sync_by_another() -> torch.Tensor:
    """One thread waits for the device; that the other had enqueued by then is luck."""
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        device = torch.full((N,), 2.0, device="cuda")
    host = torch.zeros(N, pin_memory=True)
    made: list[torch.Tensor] = []

    def copy() -> None:
        with torch.cuda.stream(side):
            host.copy_(device, non_blocking=True)  # first

    def read() -> None:
        torch.cuda.synchronize()  # edge: any
        made.append(host.clone())  # second

    _in_threads(copy, read)
    return made[0]
