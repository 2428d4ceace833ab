"""The real GPU: the same schedules, forced by gates, and the same trace."""

from __future__ import annotations

import gc
import os
import weakref
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
from .foreign import Foreign
from .gates import SIZE, DeviceFailed
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
        self._foreign = Foreign(session)
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
            self._foreign.install(patches)
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
        self._foreign.finish()
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
    if isinstance(error, DeviceFailed):
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
        self._earlier: dict[int, weakref.ref[Any]] = {}  # storages that outlived the warm-up

    def __enter__(self) -> RealGPU:
        from .driver import CudaDriver

        prepare_environment()
        torch.cuda.init()
        driver = CudaDriver(2 * SIZE)
        if self._warm is not None:
            self._warm_up(driver, self._warm)
        session = Session(driver, *self._arguments)
        session.blocks.earlier = self._earlier
        self._recording = Recording(session, self._patience)
        self._recording.__enter__()
        return self

    def _warm_up(self, driver: Any, run: Callable[[], object]) -> None:
        """The first use of a kernel loads its module, and a first allocation asks the driver: both
        can wait for the device, which is held later. So everything is done once without gates; the
        memory that this leaves behind, and that nobody uses any more, is then overwritten.
        """
        states = torch.get_rng_state(), torch.cuda.get_rng_state()
        session = Session(driver, SERIAL, frozenset(), None, held=False)
        with _quiet(), Recording(session, self._patience):
            run()
        blocks = session.blocks
        del session, run
        gc.collect()
        torch.cuda.synchronize()  # a sticky error shows here: the measured run would have it too
        driver.fill_free_memory()
        overwrite(blocks.pinned_ranges)
        self._earlier = blocks.alive()
        torch.cuda.graph.default_capture_stream = None
        torch.set_rng_state(states[0])
        torch.cuda.set_rng_state(states[1])

    def __exit__(self, *error: Any) -> None:
        if self._recording is not None:
            self._recording.__exit__(*error)

    def finish(self) -> Record:
        assert self._recording is not None
        return self._recording.finish()


def _pinned_bytes(nbytes: int) -> torch.Tensor:
    return torch.empty(nbytes, dtype=torch.uint8, pin_memory=True)


def overwrite(
    ranges: dict[int, int], allocate: Callable[[int], torch.Tensor] = _pinned_bytes
) -> None:
    """A pattern in the blocks of these that the host allocator keeps and nobody uses: it is asked
    for them, so what is still alive, or not its own, is left alone."""
    from .driver import PATTERN

    classes: dict[int, int] = {}  # rounded to a power of two, as CachingHostAllocator does
    for nbytes in ranges.values():
        held = 1 << (max(nbytes, 1) - 1).bit_length()
        classes[held] = classes.get(held, 0) + 1
    for held, count in classes.items():
        taken: list[torch.Tensor] = []  # kept until all are written; then freed in order
        for _ in range(count):
            taken.append(allocate(held))
            if taken[-1].data_ptr() not in ranges:  # a new one: no other is free
                break
            if held < 4:
                taken[-1].fill_(PATTERN & 0xFF)
            else:
                taken[-1].view(torch.int32).fill_(PATTERN)
        while taken:
            del taken[0]


@contextmanager
def _quiet() -> Iterator[None]:
    """The measured run says it all again."""
    from ..isolation import silenced

    with silenced():
        yield


__all__ = ["PATIENCE", "Driver", "RealGPU", "Recording", "prepare_environment"]
