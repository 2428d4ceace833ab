"""Which stream was current when a thread made an autograd node."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from typing import TYPE_CHECKING

import torch

if TYPE_CHECKING:
    from .gpu import StreamState

# The number that this thread's next node gets (at::sequence_number, thread-local).
next_number: Callable[[], int] = torch._C._autograd._get_sequence_nr


class StreamLog:
    """Where one thread's current stream changed, by the number of the next autograd node."""

    __slots__ = ("_numbers", "_streams")

    def __init__(self, stream: StreamState) -> None:
        self._numbers: list[int] = [0]
        self._streams: list[StreamState] = [stream]

    def change(self, stream: StreamState) -> None:
        number = next_number()
        if self._numbers[-1] == number:  # no node was made in between
            self._numbers.pop()
            self._streams.pop()
        if not self._streams or self._streams[-1] is not stream:
            self._numbers.append(number)
            self._streams.append(stream)

    def at(self, number: int) -> StreamState:
        return self._streams[bisect_right(self._numbers, number) - 1]

    def only(self, stream: StreamState) -> bool:
        return len(self._streams) == 1 and self._streams[0] is stream
