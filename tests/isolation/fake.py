"""A virtual GPU that is none: it runs everything at once on the CPU and records what it is told."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

import torch

from redgreen.faults import Fault
from redgreen.run import Record
from redgreen.schedule import Schedule
from redgreen.trace import Agent, EdgeSite, Kind, Site, Step, Trace

SITE = Site("/somewhere/pipeline.py", 31, "decode", "main.wait_event(ready)")
EDGE = EdgeSite("wait_event", SITE)
STEPS = ("decode:mul#0", "decode:copy_#0")


class Diverged(BaseException):
    """As the virtual GPU names it."""


Diverged.__module__ = "redgreen.virtual.machine"


installed: FakeGPU | None = None


class FakeGPU:
    """Has one edge and two steps; `wait()` is what a subject calls, and a fault takes it out."""

    def __init__(
        self,
        schedule: Schedule,
        faults: frozenset[Fault],
        *,
        allocator: str = "native",
        step_limit: int | None = None,
    ) -> None:
        self.schedule, self.allocator, self.step_limit = schedule, allocator, step_limit
        self.hits = dict.fromkeys(faults, 0)
        self.steps = 0

    def __enter__(self) -> Self:
        global installed
        installed = self
        self._zeros = torch.zeros

        def zeros(*args: Any, device: object = None, **kwargs: Any) -> torch.Tensor:
            return self._zeros(*args, **kwargs)

        torch.zeros = zeros
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
        /,
    ) -> None:
        torch.zeros = self._zeros

    def wait(self) -> bool:
        """True if the wait happened."""
        self.step()
        for fault in self.hits:
            self.hits[fault] += 1
        return not self.hits

    def step(self) -> None:
        self.steps += 1
        if self.step_limit is not None and self.steps > self.step_limit:
            raise Diverged(f"more than {self.step_limit} steps")

    def finish(self) -> Record:
        steps = [Step(i, 0, 0, Kind.ACCESS, "op", 0, label) for i, label in enumerate(STEPS)]
        trace = Trace([Agent(0, "host", True)], [SITE], [EDGE], [], steps, [0, 1])
        return Record(trace, self.hits)


def gpu() -> FakeGPU:
    assert installed is not None
    return installed
