"""Installs the virtual GPU as ``torch.cuda`` and its relatives, and takes it away again."""

from __future__ import annotations

import functools
import os
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType, SimpleNamespace
from typing import Any

import torch
from torch.autograd import Variable

from . import autocast, compiler, factories, graphs, modules, storage
from .autograd import Engine
from .gpu import GPU, gpu
from .methods import check_index
from .patches import Patches
from .streams import CudaStream, Event, ExternalStream, Stream, StreamContext
from .work import Work

TOTAL_MEMORY = 80 << 30  # bytes that the device says it has
_NAME = "redgreen virtual GPU"
_CAPABILITY = (9, 0)


def synchronize(device: Any = None) -> None:
    """The host waits for all work of the device."""
    g = gpu()
    edge, dropped = g.machine.edge("torch.cuda.synchronize")
    if dropped:
        return
    g.forbid_in_capture("torch.cuda.synchronize")
    if g.captures:
        from .gpu import capture_error

        capture_error(g, "torch.cuda.synchronize")

    def wait() -> None:
        g.machine.drain("torch.cuda.synchronize", g.agents(), (edge,))

    if g.mutations is None or not g.mutations.late_sync(edge, wait):
        wait()


def current_stream(device: Any = None) -> Stream:
    return CudaStream.of(gpu().current())


def default_stream(device: Any = None) -> Stream:
    return CudaStream.of(gpu().default)


def set_stream(stream: Stream | None) -> None:
    if stream is not None:
        g = gpu()
        g.current()  # a backward pass may have come to another node
        g.switch(stream._state)


def stream(stream: Stream | None) -> StreamContext:
    return StreamContext(stream)


def is_current_stream_capturing() -> bool:
    return gpu().current().capture is not None


def _sleep(cycles: int) -> None:
    """A kernel that does nothing for a while: here, nothing."""
    gpu().op("_sleep", None, ())


class device:
    """``with torch.cuda.device(0):`` there is one device."""

    def __init__(self, device: Any) -> None:
        check_index(device)
        self.idx, self.prev_idx = 0, -1

    def __enter__(self) -> None: ...

    def __exit__(self, *_: object) -> None: ...


class device_of(device):
    def __init__(self, obj: Any) -> None:
        super().__init__(0)


def set_device(device: Any) -> None:
    check_index(device)


def get_device_properties(device: Any = None) -> Any:
    return SimpleNamespace(
        name=_NAME, major=9, minor=0, total_memory=TOTAL_MEMORY, multi_processor_count=132,
        warp_size=32, max_threads_per_multi_processor=2048, max_threads_per_block=1024,
        regs_per_multiprocessor=65536, shared_memory_per_block=49152,
        shared_memory_per_block_optin=232448, shared_memory_per_multiprocessor=233472,
        L2_cache_size=50 << 20, is_integrated=0, is_multi_gpu_board=0, gcnArchName="",
        uuid="00000000-0000-0000-0000-000000000000", pci_bus_id=0, pci_device_id=0, pci_domain_id=0,
    )  # fmt: skip


# -- memory queries ------------------------------------------------------------------------------


def memory_allocated(device: Any = None) -> int:
    return gpu().memory.usage.allocated


def memory_reserved(device: Any = None) -> int:
    return gpu().memory.usage.reserved


def max_memory_allocated(device: Any = None) -> int:
    return gpu().memory.usage.peak


def max_memory_reserved(device: Any = None) -> int:
    return gpu().memory.usage.reserved_peak


def reset_peak_memory_stats(device: Any = None) -> None:
    gpu().memory.usage.reset_peaks()


def mem_get_info(device: Any = None) -> tuple[int, int]:
    return TOTAL_MEMORY - memory_reserved(), TOTAL_MEMORY


def empty_cache() -> None:
    gpu().memory.empty_cache()


def memory_stats(device: Any = None) -> dict[str, Any]:
    allocated, reserved, peak = memory_allocated(), memory_reserved(), max_memory_allocated()
    most = max_memory_reserved()
    return {
        "allocated_bytes.all.current": allocated, "allocated_bytes.all.peak": peak,
        "reserved_bytes.all.current": reserved, "reserved_bytes.all.peak": most,
        "active_bytes.all.current": allocated, "active_bytes.all.peak": peak,
        "inactive_split_bytes.all.current": 0, "num_alloc_retries": 0, "num_ooms": 0,
    }  # fmt: skip


# -- random numbers --------------------------------------------------------------------------------


def manual_seed(seed: int) -> None:
    counter = gpu().random.default
    counter.seed, counter.offset = int(seed), 0


def get_rng_state(device: Any = "cuda") -> torch.Tensor:
    counter = gpu().random.default
    return torch.tensor([counter.seed, counter.offset]).view(torch.uint8)


def set_rng_state(new_state: torch.Tensor, device: Any = "cuda") -> None:
    counter = gpu().random.default
    counter.seed, counter.offset = new_state.view(torch.int64).tolist()


def seed() -> None:
    manual_seed(int.from_bytes(os.urandom(6), "little"))  # two recordings differ if it matters


def initial_seed() -> int:
    return gpu().random.default.seed


# -- installation --------------------------------------------------------------------------------

_CUDA: dict[str, Any] = {
    "Stream": CudaStream, "Event": Event, "ExternalStream": ExternalStream,
    "StreamContext": StreamContext, "stream": stream, "current_stream": current_stream,
    "default_stream": default_stream, "set_stream": set_stream, "synchronize": synchronize,
    "CUDAGraph": graphs.CUDAGraph, "graph": graphs.graph,
    "graph_pool_handle": graphs.graph_pool_handle, "MemPool": graphs.MemPool,
    "use_mem_pool": graphs.use_mem_pool,
    "is_current_stream_capturing": is_current_stream_capturing, "_sleep": _sleep,
    "_busy_wait_for_flag": lambda: None,
    "device": device, "device_of": device_of, "set_device": set_device,
    "current_device": lambda: 0, "device_count": lambda: 1, "is_available": lambda: True,
    "is_initialized": lambda: True, "init": lambda: None, "_lazy_init": lambda: None,
    "_lazy_call": lambda call, **_: call(), "_exchange_device": lambda index: 0,
    "_maybe_exchange_device": lambda index: 0, "_is_in_bad_fork": lambda: False,
    "get_device_properties": get_device_properties, "get_device_name": lambda device=None: _NAME,
    "get_device_capability": lambda device=None: _CAPABILITY,
    "get_arch_list": lambda: ["sm_90"], "is_bf16_supported": lambda including_emulation=True: True,
    "can_device_access_peer": lambda device, peer_device: False,
    "ipc_collect": lambda: None, "utilization": lambda device=None: 0,
    "memory_allocated": memory_allocated, "memory_reserved": memory_reserved,
    "memory_cached": memory_reserved, "max_memory_allocated": max_memory_allocated,
    "max_memory_reserved": max_memory_reserved, "reset_peak_memory_stats": reset_peak_memory_stats,
    "reset_max_memory_allocated": reset_peak_memory_stats,
    "reset_accumulated_memory_stats": lambda device=None: None,
    "mem_get_info": mem_get_info, "empty_cache": empty_cache, "memory_stats": memory_stats,
    "memory_summary": lambda device=None, abbreviated=False: str(memory_stats()),
    "memory_snapshot": lambda *_, **__: [],
    "set_per_process_memory_fraction": lambda fraction, device=None: None,
    "manual_seed": manual_seed, "manual_seed_all": manual_seed, "seed": seed, "seed_all": seed,
    "initial_seed": initial_seed, "get_rng_state": get_rng_state, "set_rng_state": set_rng_state,
    "get_rng_state_all": lambda: [get_rng_state()],
    "set_rng_state_all": lambda states: set_rng_state(states[0]),
    "current_blas_handle": lambda: 0, "get_sync_debug_mode": lambda: 0,
    "set_sync_debug_mode": lambda mode: None,
}  # fmt: skip

_ACCELERATOR: dict[str, Any] = {
    "is_available": lambda: True, "device_count": lambda: 1,
    "current_accelerator": lambda check_available=False: torch.device("cuda"),
    "current_device_index": lambda: 0, "current_device_idx": lambda: 0,
    "set_device_index": set_device, "set_device_idx": set_device,
    "current_stream": current_stream, "set_stream": set_stream, "synchronize": synchronize,
    "empty_cache": empty_cache, "memory_allocated": memory_allocated,
    "memory_reserved": memory_reserved, "max_memory_allocated": max_memory_allocated,
    "max_memory_reserved": max_memory_reserved, "memory_stats": memory_stats,
    "reset_peak_memory_stats": reset_peak_memory_stats, "get_memory_info": mem_get_info,
    "device_index": device,
}  # fmt: skip


# Marks for a profiler, which there is none of.
_NVTX = SimpleNamespace(
    rangePushA=lambda message: 0, rangePop=lambda: 0, rangeStartA=lambda message: 0,
    rangeEnd=lambda handle: None, markA=lambda message: None,
    deviceRangeStart=lambda message, stream: object(), deviceRangeEnd=lambda handle, stream: None,
)  # fmt: skip

_original_device_module = torch.get_device_module


@functools.wraps(_original_device_module)  # dynamo asks for what is wrapped
def get_device_module(device: Any = None) -> Any:
    if device is None or factories.on_gpu(device):
        return torch.cuda
    return _original_device_module(device)


@functools.cache
def _twin(value: Any) -> Any:
    """Another function that does the same: dynamo keeps a table of functions."""
    if not isinstance(value, FunctionType):
        return value
    made = FunctionType(
        value.__code__, value.__globals__, value.__name__, value.__defaults__, value.__closure__
    )
    made.__kwdefaults__ = value.__kwdefaults__
    return made


@contextmanager
def installed(g: GPU) -> Iterator[GPU]:
    """While this is open, ``torch.cuda`` is the virtual GPU."""
    from .backend import register
    from .gpu import set_gpu

    register()
    patches = Patches()
    for name, value in _CUDA.items():
        patches.set(torch.cuda, name, value)
    for module in ("streams", "graphs", "memory", "random"):
        owner = getattr(torch.cuda, module)
        for name in list(vars(owner)):
            if name in _CUDA:
                patches.set(owner, name, _CUDA[name])
    patches.set(graphs.graph, "default_capture_stream", None)  # of another virtual GPU
    for name, value in _ACCELERATOR.items():
        patches.set(torch.accelerator, name, _twin(value))
    patches.set(torch.cuda, "default_generators", (factories.default_generator(g),))
    patches.set(torch.cuda.nvtx, "_nvtx", _NVTX)
    patches.set(torch, "Stream", Stream)
    patches.set(torch, "Event", Event)
    patches.set(torch, "get_device_module", get_device_module)
    patches.set(torch.version, "cuda", "13.0")
    patches.set(torch.backends.cuda, "is_built", lambda: True)
    patches.set(torch.backends.cudnn, "is_acceptable", lambda tensor: False)
    patches.set(torch.UntypedStorage, "to", storage.to_device(torch.UntypedStorage.to))
    patches.set(torch._C, "_get_accelerator", lambda: torch.device("cuda"))
    patches.set(torch._C, "_storage_Use_Count", storage.use_count(torch._C._storage_Use_Count))
    patches.set(torch.nn.Module, "_apply", modules.converting(torch.nn.Module._apply))
    factories.install(patches)
    autocast.install(patches)
    compiler.install(patches)
    patches.rebind()
    patches.set(Variable, "_execution_engine", Engine(g, Variable._execution_engine))
    g.machine.on_error = _device_error
    set_gpu(g)
    try:
        yield g
    finally:
        compiler.restore()
        g.memory.close()
        set_gpu(None)
        patches.undo()


def _device_error(work: Work, error: BaseException) -> BaseException:
    """What a kernel that failed looks like to the host, at its next sync."""
    text = str(error)
    if isinstance(error, torch.AcceleratorError):
        return error
    if isinstance(error, NotImplementedError) or "not implemented" in text:
        gpu().refuse(f"{work.op} cannot run on the virtual GPU: {text.splitlines()[0]}")
        return RuntimeError(f"{work.op} cannot run on the virtual GPU: {text}")
    made = torch.AcceleratorError("CUDA error: device-side assert triggered")
    made.__cause__ = error
    return made
