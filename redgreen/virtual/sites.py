"""From a Python frame to a place in the user's program.

The site of a call is the innermost frame that belongs neither to torch nor to redgreen nor to the
threading machinery below them; torch's own innermost frame is kept beside it, because two sync
calls of torch may stand behind one user line. Without a user frame (the pin-memory thread of a
DataLoader) torch's frame is the site, and without that one (a function of torch.cuda that a pool's
worker calls) the frame of the library that calls it.
"""

from __future__ import annotations

import linecache
import os
import sys
from types import CodeType, FrameType

import torch

from ..trace import Site

_HERE = os.path.dirname(os.path.dirname(os.path.abspath(__file__))) + os.sep
_TORCH = os.path.dirname(os.path.abspath(torch.__file__)) + os.sep
_STDLIB = os.path.dirname(os.path.abspath(os.__file__)) + os.sep
_GLUE = {_STDLIB + name for name in ("contextlib.py", "functools.py", "threading.py", "queue.py")}
_GLUE_DIRS = (_STDLIB + "concurrent" + os.sep,)

_USER, _TORCH_FRAME, _HIDDEN, _LIBRARY = 0, 1, 2, 3
# By id: to hash a code object costs more than the rest of a look-up.
_kinds: dict[int, int] = {}
_kept: list[CodeType] = []  # their ids are nobody else's


def _kind(code: CodeType) -> int:
    file = code.co_filename
    if file.startswith((_HERE, "<frozen", "<string>")):
        kind = _HIDDEN
    elif file.startswith(_TORCH):
        kind = _TORCH_FRAME
    elif file in _GLUE or file.startswith(_GLUE_DIRS):
        kind = _LIBRARY
    else:
        kind = _USER
    _kinds[id(code)] = kind
    _kept.append(code)
    return kind


class SiteTable:
    """Numbers the sites of one run."""

    def __init__(self) -> None:
        self.sites: list[Site] = [Site("", 0, "", "")]  # 0: no frame at all
        # With the file: the code of two copies of a function is equal.
        self._by_place: dict[tuple[str, CodeType, int], int] = {}
        self._by_instruction: dict[tuple[int, int], int] = {}  # the same, without asking for lines
        self._by_edge: dict[tuple[str, CodeType, int, CodeType, int], int] = {}

    def here(self, skip: int = 1) -> int:
        """The site of the current call, for steps; ``skip`` frames are known to be redgreen's."""
        frame: FrameType | None = sys._getframe(skip)
        below: FrameType | None = None
        library: FrameType | None = None
        kinds = _kinds
        while frame is not None:
            kind = kinds.get(id(frame.f_code))
            if kind is None:
                kind = _kind(frame.f_code)
            if kind == _USER:
                return self._place(frame)
            if kind == _TORCH_FRAME and below is None:
                below = frame
            elif kind == _LIBRARY and library is None:
                library = frame
            frame = frame.f_back
        below = below or library
        return self._place(below) if below is not None else 0

    def _place(self, frame: FrameType) -> int:
        instruction = (id(frame.f_code), frame.f_lasti)
        index = self._by_instruction.get(instruction)
        if index is None:
            key = (frame.f_code.co_filename, frame.f_code, frame.f_lineno)
            index = self._by_place.get(key)
            if index is None:
                index = self._by_place[key] = len(self.sites)
                self.sites.append(_site(frame, None))
            self._by_instruction[instruction] = index
        return index

    def edge(self) -> int:
        """The site of the current call, for an edge: torch's innermost frame tells it apart."""
        frame: FrameType | None = sys._getframe(1)
        below: FrameType | None = None
        library: FrameType | None = None
        while frame is not None:
            kind = _kinds.get(id(frame.f_code))
            if kind is None:
                kind = _kind(frame.f_code)
            if kind == _USER:
                break
            if kind == _TORCH_FRAME and below is None:
                below = frame
            elif kind == _LIBRARY and library is None:
                library = frame
            frame = frame.f_back
        if frame is None:
            frame, below = below or library, None
        if frame is None:
            return 0
        if below is None:
            return self._place(frame)
        code = frame.f_code
        key = (code.co_filename, code, frame.f_lineno, below.f_code, below.f_lineno)
        index = self._by_edge.get(key)
        if index is None:
            index = self._by_edge[key] = len(self.sites)
            self.sites.append(_site(frame, below))
        return index


def _site(frame: FrameType, below: FrameType | None) -> Site:
    code = frame.f_code
    file, line = code.co_filename, frame.f_lineno
    torch_frame = ""
    if below is not None:
        name = below.f_code.co_filename.removeprefix(os.path.dirname(_TORCH[:-1]) + os.sep)
        torch_frame = f"{name}:{below.f_lineno} {below.f_code.co_name}"
    text = linecache.getline(file, line, frame.f_globals).strip()
    return Site(file, line, code.co_name, text, torch_frame)
