"""The two devices that the conformance tests run on, behind one small protocol.

The tests are plain ``torch.cuda`` code. Besides that they need a gate, which holds a stream until
it is opened, and an answer to "does this call wait for the held stream?".
"""

from __future__ import annotations

import ctypes
import gc
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

import torch

from redgreen.schedule import SERIAL, Schedule

Mode = Callable[[], AbstractContextManager[object]]
MODES: dict[str, Mode] = {
    "no_grad": torch.no_grad,
    "inference_mode": torch.inference_mode,
    "grad": torch.enable_grad,
}


class Gate(Protocol):
    """Nothing enqueued on the held stream after the gate executes before the gate is open."""

    def open(self) -> None: ...
    def __enter__(self) -> Gate: ...
    def __exit__(self, *error: object) -> None: ...


class Device(Protocol):
    virtual: bool

    def hold(self, stream: torch.cuda.Stream) -> Gate: ...

    def waits(self, gate: Gate, call: Callable[[], object]) -> bool:
        """Whether ``call`` returned only after the gate had been opened."""
        ...


class VirtualDevice:
    virtual = True

    def __init__(self, schedule: Schedule = SERIAL, break_rule: int = 0) -> None:
        from redgreen.virtual import VirtualGPU

        self.gpu = VirtualGPU(schedule=schedule, break_rule=break_rule)

    def hold(self, stream: torch.cuda.Stream) -> Gate:
        gate: Gate = self.gpu.hold(stream)
        return gate

    def waits(self, gate: Gate, call: Callable[[], object]) -> bool:
        call()
        return gate.broken  # type: ignore[attr-defined, no-any-return]


class CudaGate:
    """``cuStreamWaitValue32`` on a pinned word, with a watchdog that opens it after ``LIMIT`` s."""

    LIMIT = 20.0

    def __init__(self, stream: torch.cuda.Stream, word: int) -> None:
        from cuda.bindings import driver

        self._word = ctypes.c_uint32.from_address(word)
        self._lock = threading.Lock()
        self.is_open = False
        self.expired = False
        error, address = driver.cuMemHostGetDevicePointer(word, 0)
        assert error == driver.CUresult.CUDA_SUCCESS, error
        flag = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
        (error,) = driver.cuStreamWaitValue32(stream.cuda_stream, address, 1, flag)
        assert error == driver.CUresult.CUDA_SUCCESS, error
        self._watchdog = threading.Timer(self.LIMIT, self._expire)
        self._watchdog.daemon = True
        self._watchdog.start()

    def _expire(self) -> None:
        with self._lock:
            self.expired = not self.is_open
        self.open()

    def open(self) -> None:
        with self._lock:
            self.is_open = True
            self._word.value = 1
        self._watchdog.cancel()

    def __enter__(self) -> CudaGate:
        return self

    def __exit__(self, *error: object) -> None:
        self.open()


class CudaDevice:
    virtual = False

    def __init__(self) -> None:
        gc.collect()
        torch.cuda.set_stream(torch.cuda.default_stream())  # a test may have changed it for good
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        # A capture that failed leaves the generator where random numbers are refused.
        torch.cuda.default_generators[0].graphsafe_set_state(torch.Generator("cuda"))
        warm_up()
        self._words = torch.zeros(64, dtype=torch.int32, pin_memory=True)
        self._gates: list[CudaGate] = []
        torch.cuda.synchronize()

    def hold(self, stream: torch.cuda.Stream) -> CudaGate:
        gate = CudaGate(stream, self._words.data_ptr() + 4 * len(self._gates))
        self._gates.append(gate)
        return gate

    def waits(self, gate: Gate, call: Callable[[], object]) -> bool:
        """The one answer that needs a clock: a call that has not returned by then is waiting.

        That it does *not* wait is certain (it returned behind a closed gate).
        """
        assert isinstance(gate, CudaGate)
        returned = threading.Event()

        def open_late() -> None:
            if not returned.wait(1.0):
                gate.open()

        opener = threading.Thread(target=open_late)
        opener.start()
        try:
            call()
            waited = gate.is_open
        finally:
            returned.set()
            opener.join()
        return waited

    def check(self) -> None:
        expired = [i for i, gate in enumerate(self._gates) if gate.expired]
        assert not expired, f"the watchdog opened gates {expired}: something needed a held stream"


@contextmanager
def entered(kind: str, break_rule: int = 0) -> Iterator[Device]:
    """The device of that name, installed in this process."""
    if kind == "cuda":
        assert not break_rule
        cuda = CudaDevice()
        yield cuda
        cuda.check()
        return
    from redgreen.schedule import LAZY

    virtual = VirtualDevice(LAZY if kind == "virtual-lazy" else SERIAL, break_rule)
    with virtual.gpu:
        yield virtual


def why_no_cuda() -> str | None:
    """The reason to skip the tests on a real GPU, or None."""
    if not torch.cuda.is_available():
        return "no CUDA device: torch.cuda.is_available() is false"
    try:
        import cuda.bindings.driver  # noqa: F401
    except ImportError:
        return "the gates need the package cuda-bindings"
    return None


def prepare_environment() -> None:
    """Before CUDA is initialised: gates need channels of their own, children need a fork."""
    os.environ.setdefault("CUDA_DEVICE_MAX_CONNECTIONS", "32")
    os.environ.setdefault("CUDA_MODULE_LOADING", "EAGER")
    # is_available() by NVML leaves CUDA uninitialised, so that a forked child can use it.
    os.environ.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")


def warm_up() -> None:
    """Load the kernels and fill the allocators' caches: under a gate that could block the host."""
    big = 1 << 20
    for pinned in [torch.ones(n, pin_memory=True) for n in (64, 1024, big) for _ in range(3)]:
        pinned.cuda(non_blocking=True).to("cpu", non_blocking=True)
    streams = [torch.cuda.default_stream(), *(torch.cuda.Stream() for _ in range(32))]
    for stream in streams:
        with torch.cuda.stream(stream):
            kept = [torch.empty(n, device="cuda") for n in (64, 1024, 1024, big, big)]
        del kept
    a, half = torch.ones(64, 64, device="cuda"), torch.ones(64, device="cuda").half()
    b = (a + 1) * 2 - a / 3 + a[:, ::2].contiguous().sum() + half.float().sum()
    b.copy_(a)
    b[:, ::2].copy_(a[:, ::2])
    a.fill_(2).mul_(2).add_(1).add_(b, alpha=2).zero_()
    torch.equal(a * b, b)
    (a @ b).relu_().eq(0).nonzero()
    a[torch.zeros(2, dtype=torch.long, device="cuda")].clone().index_fill_(0, half[:1].long(), 1)
    a.clone().requires_grad_().mul(2).sum().backward()
    torch.nn.functional.dropout(a).add_(torch.rand(64, device="cuda")).uniform_().normal_()
    torch.randn(8, device="cuda"), torch.randint(9, (8,), device="cuda")
    torch.randperm(8, device="cuda")
    torch.arange(8, device="cuda").add_(1), torch.full((8,), 3, device="cuda").mul_(2)
    torch.cuda.synchronize()
