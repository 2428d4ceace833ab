"""What the engine did: evidence that a mechanism was engaged, or was not."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Counters:
    """Numbers since the engine started."""

    eager_steps: int = 0  # forward passes outside decode graphs
    cold_steps: int = 0  # first passes of a graph slot, not captured
    captures: int = 0
    replays: int = 0
    rebuilt_slots: int = 0  # dropped because the block table grew (E32)
    capture_reserved_bytes: int = 0  # taken from the driver during captures
    drains: int = 0  # host waits for MAIN before a step
    drain_skips: int = 0
    row_moves: int = 0  # steps that moved rows of the mirror
    staging_buffers: int = 0  # pinned blocks of Option A
    staged_events: int = 0
    second_slots: int = 0  # ring slots beyond the first of a key
    output_slots: int = 0  # of the output pool
    wait_free_steps: int = 0  # outputs given up without being read (E45)
