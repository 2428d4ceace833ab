"""The virtual GPU: ``torch.cuda`` on a machine without one, with a schedule that we control."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from ..faults import Fault
from ..schedule import SERIAL, Schedule
from .facade import installed
from .gpu import GPU, Record

if TYPE_CHECKING:
    from .streams import Stream


class VirtualGPU:
    """Installs a fresh virtual GPU as ``torch.cuda`` for a with-block, in this process.

    State that torch keeps elsewhere survives the block; isolated runs fork (`redgreen.isolation`).
    """

    def __init__(
        self,
        schedule: Schedule = SERIAL,
        faults: frozenset[Fault] = frozenset(),
        *,
        allocator: str = "native",
        step_limit: int | None = None,
        break_rule: int = 0,
    ) -> None:
        self.gpu = GPU(schedule, faults, step_limit, break_rule)
        self._installed: AbstractContextManager[GPU] | None = None

    def __enter__(self) -> VirtualGPU:
        self._installed = installed(self.gpu)
        self._installed.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        if self._installed is not None:
            self._installed.__exit__(*error)

    def hold(self, stream: Stream) -> Hold:
        """No further work of ``stream`` executes until the hold is opened."""
        return Hold(self.gpu, stream._state.agent)

    def finish(self) -> Record:
        """Lets the device finish and hands out the trace. The run is over."""
        machine = self.gpu.machine
        trace = machine.finish()
        self.gpu.memory.close()
        return Record(trace, machine.hits, tuple(machine.broken), machine.changed)


class Hold:
    """Holds one stream. A host sync that needs the stream opens it, with a note in the trace."""

    def __init__(self, gpu: GPU, agent: int) -> None:
        self._gpu, self._agent = gpu, agent
        gpu.machine.holds.add(agent)

    def open(self) -> None:
        self._gpu.machine.release(self._agent)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()
