"""What is asked of CUDA itself, behind one small protocol, so that the rest can be tested without.

Words are 32-bit flags in pinned host memory that both sides see. A stream waits for a word with
``cuStreamWaitValue32`` and sets one with ``cuStreamWriteValue32`` (CUDA Driver API, Stream Memory
Operations): both are stream-ordered, need no kernel and may be captured into a graph. A write comes
with a memory barrier, so what the stream did before is visible to who sees the word.
"""

from __future__ import annotations

from collections.abc import Iterator, MutableSequence
from contextlib import contextmanager
from typing import Any, Protocol

import torch

PATTERN = 0x3C6EF35F | 0x41  # as float32 a small odd number, as an index far out of range


class Driver(Protocol):
    """One device. Streams are given by their raw handles; 0 is the default stream."""

    device_type: str
    words: MutableSequence[int]

    def wait(self, stream: int, word: int) -> None:
        """What is enqueued on the stream from now on waits until the word is 1."""
        ...

    def write(self, stream: int, word: int) -> None:
        """The word becomes 1 when what is enqueued so far is done."""
        ...

    def current(self) -> int:
        """The calling thread's current stream."""
        ...

    def on(self, stream: int) -> Any:
        """A block in which that stream is the calling thread's current one."""
        ...

    def failed(self, stream: int) -> str:
        """The sticky error of the context, "" while there is none. Not during a capture."""
        ...

    def segment(self, address: int) -> tuple[int, int]:
        """Start and size of the allocator's segment of device memory that holds this address."""
        ...

    def address(self, storage: torch.UntypedStorage) -> int: ...

    def pinned(self, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
        """An operator that returns pinned memory."""
        ...

    def copy(self, dst: torch.Tensor, src: torch.Tensor, non_blocking: bool) -> None:
        """``copy_`` where device memory takes part."""
        ...

    def record_stream(self, tensor: torch.Tensor, stream: Any) -> None: ...

    def scalar(self, tensor: torch.Tensor) -> Any:
        """``item`` of a device tensor."""
        ...


def unused(snapshot: Any) -> list[tuple[int, int]]:
    """Start and size of what the allocator's segments hold and no tensor has. What a block awaits
    before it is free is over: the device was synchronized."""
    result = []
    for segment in snapshot:
        address = segment["address"]
        for block in segment["blocks"]:
            if block["state"] != "active_allocated":
                result.append((address, block["size"]))
            address += block["size"]  # blocks of a segment have no gaps
    return result


class CudaDriver:
    """The current device of this process, through cuda-bindings."""

    device_type = "cuda"

    def __init__(self, words: int) -> None:
        from cuda.bindings import driver

        self._driver = driver
        self._memory = torch.zeros(words, dtype=torch.int32, pin_memory=True)
        self.words: Any = self._memory.numpy()
        error, address = driver.cuMemHostGetDevicePointer(self._memory.data_ptr(), 0)
        self._check(error)
        self._address = int(address)
        self._equal = driver.CUstreamWaitValue_flags.CU_STREAM_WAIT_VALUE_EQ
        self._streams: dict[int, torch.cuda.Stream] = {}

    def _check(self, error: Any) -> None:
        if error != self._driver.CUresult.CUDA_SUCCESS:
            raise torch.AcceleratorError(f"CUDA error: {self._text(error)}")

    def _text(self, error: Any) -> str:
        """In the words of the runtime, which torch shows."""
        found, text = self._driver.cuGetErrorString(error)
        return text.decode() if found == self._driver.CUresult.CUDA_SUCCESS else str(error)

    def wait(self, stream: int, word: int) -> None:
        (error,) = self._driver.cuStreamWaitValue32(
            stream, self._address + 4 * word, 1, self._equal)
        self._check(error)

    def write(self, stream: int, word: int) -> None:
        (error,) = self._driver.cuStreamWriteValue32(stream, self._address + 4 * word, 1, 0)
        self._check(error)

    def current(self) -> int:
        return torch._C._cuda_getCurrentRawStream(0)

    @contextmanager
    def on(self, stream: int) -> Iterator[None]:
        if stream == self.current():
            yield
            return
        external = self._streams.get(stream)
        if external is None:  # a handle for what exists already
            external = self._streams[stream] = torch.cuda.ExternalStream(stream)
        before = torch._C._cuda_getCurrentStream(0)
        torch._C._cuda_setStream(external.stream_id, external.device_index, external.device_type)
        try:
            yield
        finally:
            torch._C._cuda_setStream(*before)

    def failed(self, stream: int) -> str:
        (error,) = self._driver.cuStreamQuery(stream)
        results = self._driver.CUresult
        if error in (results.CUDA_SUCCESS, results.CUDA_ERROR_NOT_READY):
            return ""
        return f"CUDA error: {self._text(error)}"

    def segment(self, address: int) -> tuple[int, int]:
        for start, size in self._segments():
            if start <= address < start + size:
                return start, size
        return address, 1  # not the caching allocator's (an external pointer)

    def _segments(self) -> list[tuple[int, int]]:
        return [(s["address"], s["total_size"]) for s in torch.cuda.memory_snapshot()]

    def fill_free_memory(self) -> None:
        """A pattern in all device memory that the allocator keeps and nobody uses.

        What the warm-up left there are the right values: who reads too early would find them.
        """
        for start, size in unused(torch.cuda.memory_snapshot()):
            (error,) = self._driver.cuMemsetD32(start, PATTERN, size // 4)
            self._check(error)
        torch.cuda.synchronize()

    def address(self, storage: torch.UntypedStorage) -> int:
        return storage.data_ptr()

    def pinned(self, func: Any, args: Any, kwargs: Any) -> torch.Tensor:
        made: torch.Tensor = func(*args, **kwargs)
        return made

    def copy(self, dst: torch.Tensor, src: torch.Tensor, non_blocking: bool) -> None:
        torch.ops.aten.copy_.default(dst, src, non_blocking)

    def record_stream(self, tensor: torch.Tensor, stream: Any) -> None:
        torch._C.TensorBase.record_stream(tensor, stream)

    def scalar(self, tensor: torch.Tensor) -> Any:
        return torch.ops.aten._local_scalar_dense.default(tensor)
