"""A kernel in two parts, with other work in between: see ``redgreen.tears``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from ..extent import positions
from ..schedule import Torn
from ..tears import WHOLE
from ..trace import Access
from .memory import Memory
from .picks import MAX_EXTENTS
from .work import Work

Bytes = npt.NDArray[np.uint8]


class Parts:
    """Executes ``work`` in two parts. Its kernel runs more than once, from the same bytes."""

    def __init__(self, work: Work, torn: Torn, memories: Sequence[Memory]) -> None:
        assert work.run is not None
        self._work, self._how, self._memories = work, torn.how, memories
        self._kernel: Callable[[Work], object] = work.run
        self._output: list[_Piece] = []
        self._made: list[Bytes] = []
        self._early: list[npt.NDArray[np.bool_]] = []  # bytes that the first part writes
        self._changed: list[npt.NDArray[np.bool_]] = []  # pieces that the kernel changes

    def begin(self, _: Work) -> None:
        """Everything is read; stale: nothing is written yet, split: every other piece is."""
        touched = self._written()
        before = [piece.read() for piece in touched]
        self._run()
        self._output = self._written()  # the kernel may know better than the call did
        self._made = [piece.read() for piece in self._output]
        self._early = [piece.early() for piece in self._output]
        _write(touched, before)
        self._changed = [piece.changes(new) for piece, new in
                         zip(self._output, self._made, strict=True)]  # fmt: skip
        if self._how == "stale":
            return
        for piece, made, early in zip(self._output, self._made, self._early, strict=True):
            piece.write(made, early)
        half = [piece.read() for piece in touched]
        self._run()  # a kernel that reads its own output may not be cut (cumsum_): try it
        again = [piece.read() for piece in self._output]
        _write(touched, half)
        late = zip(again, self._made, self._early, strict=True)
        if any((new != made)[~early].any() for new, made, early in late):
            _write(touched, before)
            self._how = "stale"

    def rest(self, _: Work) -> None:
        """The other part, with the bytes that are there by now (split) or were then (stale)."""
        if self._how == "stale":
            for piece, data, changed in zip(self._output, self._made, self._changed, strict=True):
                piece.write(data, changed)
            return
        touched = self._written()
        now = [piece.read() for piece in touched]
        self._run()
        made = [piece.read() for piece in self._output]
        _write(touched, now)
        for piece, late, early in zip(self._output, made, self._early, strict=True):
            piece.write(late, ~early)

    def _run(self) -> None:
        self._kernel(self._work)

    def _written(self) -> list[_Piece]:
        accesses = [a for a in self._work.accesses if a.writes and a.memory >= 0]
        return [_Piece(self._memories[access.memory].buffer, access) for access in accesses]


class _Piece:
    """The bytes of one access."""

    def __init__(self, buffer: Bytes, access: Access) -> None:
        self._buffer, self._where = buffer, positions(access.extent)

    def read(self) -> Bytes:
        return self._buffer[self._where]  # a copy

    def write(self, data: Bytes, where: npt.NDArray[np.bool_]) -> None:
        self._buffer[self._where[where]] = data[where]

    def changes(self, data: Bytes) -> npt.NDArray[np.bool_]:
        """Which bytes are in pieces that ``data`` would change.

        A step with very many rows counts as writing its whole tensor (`picks`): the pieces that it
        leaves as they are may be another's to change in between. Smaller accesses are exact.
        """
        if len(self._where) <= MAX_EXTENTS:
            return np.ones(len(self._where), np.bool_)
        units = self._where // WHOLE
        found: npt.NDArray[np.bool_] = np.isin(units, units[data != self.read()])
        return found

    def early(self) -> npt.NDArray[np.bool_]:
        found: npt.NDArray[np.bool_] = self._where // WHOLE % 2 == 0
        return found


def _write(pieces: Sequence[_Piece], contents: Sequence[Bytes]) -> None:
    for piece, data in zip(pieces, contents, strict=True):
        piece.write(data, np.ones(len(data), np.bool_))
