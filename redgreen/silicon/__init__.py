"""The real GPU: the same schedules, forced by gates, and the same trace."""

from __future__ import annotations

import gc
import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import torch

from ..faults import Fault
from ..run import Record
from ..schedule import SERIAL, Schedule
from ..threads import Control, current_agent
from ..trace import Note
from ..virtual import HostOrder
from ..virtual.patches import Patches
from . import host
from .driver import Driver
from .facade import Facade
from .gates import SIZE
from .recorder import Recorder
from .session import Session
from .watchdog import Watchdog

PATIENCE = 20.0  # seconds without a step, after which the watchdog opens all gates


def prepare_environment() -> None:
    """Before CUDA is initialised. A gated stream must not hold others that share its channel
    (CUDA_DEVICE_MAX_CONNECTIONS, at most 32), and asking whether there is a device must not
    initialise it, or no forked child could."""
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


class Recording:
    """Records and directs what happens in a with-block, on the given device."""

    def __init__(self, session: Session, patience: float = PATIENCE) -> None:
        self.session = session
        self.control = Control(HostOrder(session.machine))
        self.watchdog = Watchdog(patience, self._progress, session.gates.open_all)
        self._open = ExitStack()

    def _progress(self) -> int:
        return len(self.session.machine.works) + self.session.gates.opened

    def __enter__(self) -> Recording:
        s, machine = self.session, self.session.machine
        with ExitStack() as opening:
            patches = Patches()
            opening.callback(patches.undo)
            Facade(s).install(patches)
            host.install(s, patches)
            opening.callback(self._close)
            opening.enter_context(self.control)
            self.watchdog.start(self.control.baton.private)
            opening.callback(self.watchdog.stop)
            s.gates.watchdog = self.watchdog
            machine.thread_key = current_agent
            machine.before_step = self.control.step
            machine.hold_up = self.control.hold_up
            machine.on_error = _device_error
            self.control.on_thread(lambda: _push(Recorder(s)))
            opening.enter_context(Recorder(s))
            self._open = opening.pop_all()
        return self

    def __exit__(self, *error: Any) -> None:
        self._open.__exit__(*error)

    def _close(self) -> None:
        """Nothing may stay held: the process goes on to use the device, or ends."""
        self.session.closed = self.session.blocks.closed = True
        self.session.gates.open_all()

    def finish(self) -> Record:
        """Lets the device finish and hands out the trace. The run is over."""
        s = self.session
        self.control.freeze()
        s.machine.before_step = None
        record = s.finish()
        trace = record.trace
        trace.notes += [Note("uncontrolled", 0, what) for what in self.control.uncontrolled]
        trace.notes += [
            Note("unfinished-thread", 0, f"{agent.name} used the device and goes on when the "
                 "program has returned: nothing is known of what it does then")
            for agent in self.control.baton.unfinished() if s.machine.knows(agent.id)
        ]  # fmt: skip
        if self.control.deadlock is not None:
            trace.refusals.append(f"the host threads deadlocked: {self.control.deadlock}")
        return record


def _push(recorder: Recorder) -> None:
    """For good: the mode ends with the thread."""
    recorder.__enter__()  # type: ignore[no-untyped-call]


def _device_error(work: Any, error: BaseException) -> BaseException:
    """What the host sees at its next sync, in the words of torch."""
    if isinstance(error, torch.AcceleratorError):
        return error
    if type(error).__name__ == "DeviceFailed":
        return torch.AcceleratorError(str(error))
    return error


class RealGPU:
    """The GPU of this process for one run: initialised, warmed up by ``warm``, then recorded."""

    def __init__(
        self, schedule: Schedule = SERIAL, faults: frozenset[Fault] = frozenset(), *,
        step_limit: int | None = None, patience: float = PATIENCE,
        warm: Callable[[], object] | None = None,
    ) -> None:  # fmt: skip
        self._arguments = schedule, faults, step_limit
        self._patience, self._warm = patience, warm
        self._recording: Recording | None = None

    def __enter__(self) -> RealGPU:
        from .driver import CudaDriver

        prepare_environment()
        torch.cuda.init()
        driver = CudaDriver(2 * SIZE)
        if self._warm is not None:
            self._warm_up(driver, self._warm)
        self._recording = Recording(Session(driver, *self._arguments), self._patience)
        self._recording.__enter__()
        return self

    def _warm_up(self, driver: Any, run: Callable[[], object]) -> None:
        """The first use of a kernel loads its module, and a first allocation asks the driver: both
        can wait for the device, which is held later. So everything is done once without gates; the
        memory that this leaves behind is then overwritten.
        """
        states = torch.get_rng_state(), torch.cuda.get_rng_state()
        session = Session(driver, SERIAL, frozenset(), None, held=False)
        with _quiet(), Recording(session, self._patience):
            run()
        ranges = session.blocks.pinned_ranges
        del session, run
        gc.collect()
        torch.cuda.synchronize()  # a sticky error shows here: the measured run would have it too
        driver.fill_free_memory()
        overwrite(ranges)
        torch.cuda.graph.default_capture_stream = None
        torch.set_rng_state(states[0])
        torch.cuda.set_rng_state(states[1])

    def __exit__(self, *error: Any) -> None:
        if self._recording is not None:
            self._recording.__exit__(*error)

    def finish(self) -> Record:
        assert self._recording is not None
        return self._recording.finish()


def overwrite(ranges: dict[int, int]) -> None:
    """A pattern in pinned blocks that the host allocator keeps; all of them are free."""
    import ctypes

    from .driver import PATTERN

    for address, nbytes in ranges.items():
        count = nbytes // 4
        ctypes.memmove(address, PATTERN.to_bytes(4, "little") * count, 4 * count)


@contextmanager
def _quiet() -> Iterator[None]:
    """The measured run says it all again."""
    from ..isolation import _silenced

    with _silenced():
        yield


__all__ = ["PATIENCE", "Driver", "RealGPU", "Recording", "prepare_environment"]
