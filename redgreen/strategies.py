"""Hypothesis strategies: schedules to run a program under, beside whatever workload is drawn.

    @given(batches=st.lists(st.integers(1, 64)), schedule=redgreen.strategies.schedules())
    def test_pipeline(batches, schedule):
        redgreen.check(run_pipeline, batches, schedule=schedule)

A schedule departs from the serial one in a few steps, which are late. It shrinks to the fewest of
them and to the earliest, so a failure names the steps whose lateness the program cannot bear.
"""

from __future__ import annotations

from hypothesis import strategies as st

from .schedule import SERIAL, Schedule
from .subject import UsageError
from .token import decode

__all__ = ["from_token", "priorities", "schedules"]


def schedules(*, steps: int = 64, departures: int = 6) -> st.SearchStrategy[Schedule]:
    """Serial, but for up to ``departures`` late steps among the first ``steps`` device accesses.

    Raises ValueError if a number is not positive.
    """
    if steps < 1 or departures < 1:
        raise ValueError(f"steps and departures are at least 1, not {steps} and {departures}")
    few = st.lists(st.integers(0, steps - 1), max_size=departures, unique=True)
    return few.map(lambda late: Schedule("late", late=tuple(sorted(late))) if late else SERIAL)


def priorities(*, steps: int = 64, changes: int = 2) -> st.SearchStrategy[Schedule]:
    """Random priorities of streams and host, and up to ``changes`` of them within ``steps`` host
    steps: probabilistic concurrency testing. Raises ValueError if a number is negative or no steps.
    """
    if steps < 1 or changes < 0:
        raise ValueError(f"steps is at least 1 and changes 0, not {steps} and {changes}")
    points = st.lists(st.integers(0, steps - 1), max_size=changes, unique=True)
    return st.builds(
        lambda seed, late: Schedule("pct", seed=seed, late=tuple(sorted(late))),
        st.integers(0, 2**31 - 1), points,
    )  # fmt: skip


def from_token(token: str) -> Schedule:
    """The schedule that a failure printed, for ``redgreen.check(..., schedule=...)``.

    Raises redgreen.UsageError for what is no token, and for the token of a program with an edge
    taken out: `check` runs the program as it is.
    """
    found = decode(token)
    if found.faults:
        raise UsageError("the token is of a program without one of its edges: use redgreen replay")
    return found.schedule
