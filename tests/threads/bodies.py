"""Threads of a program."""

from __future__ import annotations

import threading
from collections.abc import Callable


def in_threads(*bodies: Callable[[], object]) -> None:
    threads = [threading.Thread(target=body) for body in bodies]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
