"""The threads' stacks as text, for people."""

from __future__ import annotations

import sys
import threading
import traceback
from collections.abc import Iterable
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from redgreen.threads.agent import Agent


def describe(agent: Agent) -> str:
    """One controlled thread: number, name, what it waits for, stack."""
    state = "outside control" if agent.outside else agent.waits_for or "running"
    return f"thread {agent.id} {agent.name!r} ({state}):\n{_stack(agent.ident)}"


def describe_all(agents: Iterable[Agent]) -> str:
    """Every thread of the process, the uncontrolled ones too."""
    alive = [agent for agent in agents if not agent.finished]
    parts = [describe(agent) for agent in alive]
    known = {agent.ident for agent in alive} | {threading.get_ident()}
    names = {thread.ident: thread.name for thread in list(threading._active.values())}  # type: ignore[attr-defined]
    for ident in sys._current_frames():
        if ident not in known:
            parts.append(f"uncontrolled thread {names.get(ident, ident)!r}:\n{_stack(ident)}")
    return "\n".join(parts)


def _stack(ident: int) -> str:
    frame = sys._current_frames().get(ident)
    if frame is None:
        return "  (no Python frame)\n"
    mine = __file__.rpartition("/")[0]  # how a thread is started and parked says nothing
    frames = [at for at in traceback.extract_stack(frame) if not at.filename.startswith(mine)]
    return "".join(traceback.format_list(frames)) or "  (inside redgreen)\n"
