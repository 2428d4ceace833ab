"""Changes to the program at a sync call site."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from .trace import EdgeSite

Action = Literal["drop", "poison", "wait"]


@dataclass(frozen=True, slots=True)
class Fault:
    """``drop``: the call at ``edge`` is not made, at every instance of the site.

    A dropped record leaves the event at its older record; a dropped host sync lets the host read
    early; a dropped ``record_stream`` lets the allocator reuse at once. ``poison``: the pinned
    source of the copy at ``edge`` (kind "copy") is overwritten right after the copy is enqueued.
    ``wait``: no fault but its opposite; before each access of ``waiter`` at the site of ``edge`` it
    waits for what ``awaited`` was given so far. Both are names of agents.
    """

    action: Action
    edge: EdgeSite
    waiter: str = ""
    awaited: str = ""
