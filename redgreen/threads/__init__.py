"""Host threads under control: one runs at a time, and it switches only where it blocks."""

from redgreen.threads.agent import Deadlock
from redgreen.threads.baton import Chooser, FirstCome
from redgreen.threads.bindings import survey
from redgreen.threads.control import Control, active, current_agent
from redgreen.threads.order import Key, Listener
from redgreen.threads.outside import outside
from redgreen.threads.watchdog import Watchdog

__all__ = [
    "Chooser",
    "Control",
    "Deadlock",
    "FirstCome",
    "Key",
    "Listener",
    "Watchdog",
    "active",
    "current_agent",
    "outside",
    "survey",
]
