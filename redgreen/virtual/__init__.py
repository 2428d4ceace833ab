"""The virtual GPU: ``torch.cuda`` on a machine without one, with a schedule that we control."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from .. import threads
from ..backend import canonical, check
from ..faults import Fault
from ..run import Record
from ..schedule import SERIAL, Schedule
from ..threads import Control, Key, current_agent
from ..trace import Kind, Note
from . import patches
from .facade import installed
from .gpu import GPU
from .machine import Machine

if TYPE_CHECKING:
    from .streams import Stream


def prepare() -> None:
    """In a template, before it forks: what would cost every child a copy of its memory."""
    patches.survey()
    threads.survey()


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
        check("virtual", allocator)
        self.gpu = GPU(schedule, faults, step_limit, break_rule, canonical(allocator))
        self.control = Control(HostOrder(self.gpu.machine))
        self._open = ExitStack()

    def __enter__(self) -> VirtualGPU:
        machine = self.gpu.machine
        with ExitStack() as opening:
            opening.enter_context(installed(self.gpu))
            opening.enter_context(self.control)
            machine.thread_key = current_agent
            machine.before_step = self._before_step()
            machine.hold_up = self.control.hold_up
            self._open = opening.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def _before_step(self) -> Callable[[], None]:
        control, mutations = self.control.step, self.gpu.mutations
        if mutations is None:
            return control

        def step() -> None:
            mutations.step()
            control()

        return step

    def hold(self, stream: Stream) -> Hold:
        """Work issued to ``stream`` from now on does not execute until the hold is opened."""
        return Hold(self.gpu, stream._state.agent)

    def finish(self) -> Record:
        """Lets the device finish and hands out the trace. The run is over."""
        machine = self.gpu.machine
        self.control.freeze()
        machine.before_step = None
        self.gpu.memory.pinned.look()
        trace = machine.finish()
        self.gpu.memory.close()
        trace.notes += [Note("uncontrolled", 0, what) for what in self.control.uncontrolled]
        trace.notes += [
            Note("unfinished-thread", 0, f"{agent.name} used the device and goes on when the "
                 "program has returned: nothing is known of what it does then")
            for agent in self.control.baton.unfinished() if machine.knows(agent.id)
        ]  # fmt: skip
        if self.control.deadlock is not None:
            trace.refusals.append(f"the host threads deadlocked: {self.control.deadlock}")
        return Record(trace, machine.hits, tuple(machine.broken), machine.changed,
                      tuple(machine.given_up))


class HostOrder:
    """Writes what orders the host threads into the trace."""

    def __init__(self, machine: Machine) -> None:
        self._machine = machine

    def thread_started(self, thread: int, name: str) -> None:
        taken = self._machine.thread_names.values()
        unique = f"host {name}"
        self._machine.thread_names[thread] = (
            unique if unique not in taken else f"{unique} ({thread})"
        )

    def published(self, key: Key, thread: int) -> None:
        self._machine.host_order(Kind.PUBLISH, key, thread)

    def acquired(self, key: Key, thread: int) -> None:
        self._machine.host_order(Kind.ACQUIRE, key, thread)


class Hold:
    """Holds one stream. A host sync that needs the stream opens it, with a note in the trace."""

    def __init__(self, gpu: GPU, agent: int) -> None:
        self._machine = gpu.machine
        self._gate = gpu.machine.hold(agent)

    @property
    def broken(self) -> bool:
        """Whether a host sync had to open it."""
        return self._gate.broken

    def open(self) -> None:
        self._machine.release(self._gate)

    def __enter__(self) -> Hold:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()
