"""Makes PrivateUse1 the identity that C++ gives device tensors. Once per process, not undone.

PrivateUse1 is only a device type here: indexing, autograd and ``nn.Module.to`` need one that is
not the CPU. Its stream hooks are not used. Factories with ``device="cuda"`` reach the CUDA key
also on a CPU build; the two allocating operators are implemented for both keys, in every thread.
"""

from __future__ import annotations

import sys
import warnings
from collections.abc import Iterator, Mapping
from functools import partial
from types import CodeType, FunctionType
from typing import Any

import torch
from torch._C._dynamo.eval_frame import (
    _FrameAction,
    _FrameExecStrategy,
    set_code_exec_strategy,
)
from torch.utils.backend_registration import (
    _DummyBackendModule,
    _setup_privateuseone_for_python_backend,
)

from . import attention, autocast, copies, dispatch, rnn
from .gpu import BACKEND, gpu, if_installed
from .guard import Guard
from .methods import check_index, install_methods
from .tensor import set_dispatch

_libraries: list[torch.library.Library] = []


class _Module(_DummyBackendModule):
    """``torch.vgpu``. Outside of a `VirtualGPU` there is no accelerator, as before the first one:
    a DataLoader of an ordinary test, say, would otherwise pin memory that nobody can pin.
    """

    def is_available(self) -> bool:
        return if_installed() is not None

    def device_count(self) -> int:
        return int(self.is_available())


def _start_autograd() -> None:
    """Lets autograd's engine start while there is no device, so that it never starts a thread.

    On its first backward the engine starts a thread for each device of each guard, and from then
    on refuses to run in a forked child (engine.cpp, start_device_threads). The virtual GPU has
    multithreading off and needs none of them.
    """
    if torch.cuda.device_count() == 0:
        with torch.inference_mode(False), torch.enable_grad():
            torch.zeros((), requires_grad=True).neg().backward()


def register() -> None:
    """Registers the backend; later calls do nothing."""
    if _libraries:
        return
    _start_autograd()
    _setup_privateuseone_for_python_backend(BACKEND, _Module(), device_guard=Guard())
    set_dispatch(dispatch.dispatch)
    install_methods()
    library = torch.library.Library("aten", "IMPL")
    fallback = torch.library.Library("_", "IMPL")
    _libraries.extend((library, fallback))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a CUDA build has kernels for the CUDA key already
        for key in ("CUDA", "PrivateUse1"):
            library.impl("empty.memory_format", _empty, key)
            library.impl("empty_strided", _empty_strided, key)
            library.impl("_copy_from", copies.copy_from, key)
            library.impl("_local_scalar_dense", _scalar, key)
        for name in ("silu_backward", "mish_backward", "native_channel_shuffle"):
            op = getattr(torch.ops.aten, name).default
            library.impl(op, partial(_fallback, op), "PrivateUse1")  # else C++ decomposes them
        autocast.register(library, fallback)
        attention.register(library)
        rnn.register(library)
        fallback.fallback(_fallback, "PrivateUse1")
        fallback.fallback(_factory, "CUDA")
        _hide_from_dynamo()


def _empty(size: Any, **options: Any) -> torch.Tensor:
    return dispatch.dispatch(torch.ops.aten.empty.memory_format, (list(size),), _placed(options))  # type: ignore[no-any-return]


def _empty_strided(size: Any, stride: Any, **options: Any) -> torch.Tensor:
    return dispatch.dispatch(  # type: ignore[no-any-return]
        torch.ops.aten.empty_strided.default, (list(size), list(stride)), _placed(options)
    )


def _placed(options: dict[str, Any]) -> dict[str, Any]:
    check_index(options.get("device"))
    options["device"] = torch.device(BACKEND, 0)
    return options


def _factory(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Operators without tensors that only CUDA's build has a kernel for (tril_indices)."""
    gpu()
    return dispatch.dispatch(op, args, _placed(kwargs))


def _hide_from_dynamo() -> None:
    """Operators run while torch.compile traces: it must not look into what they do here."""
    skip = _FrameExecStrategy(_FrameAction.SKIP, _FrameAction.SKIP)
    for title, module in list(sys.modules.items()):
        if title.startswith("redgreen."):
            for code in _code_of(vars(module)):
                set_code_exec_strategy(code, skip)


def _code_of(names: Mapping[str, Any]) -> Iterator[CodeType]:
    for value in list(names.values()):
        function = getattr(value, "__func__", value)
        if isinstance(function, FunctionType):
            yield function.__code__
        elif isinstance(value, type) and value.__module__.startswith("redgreen."):
            yield from _code_of(vars(value))


def _scalar(tensor: torch.Tensor) -> Any:
    return dispatch.dispatch(torch.ops.aten._local_scalar_dense.default, (tensor,), {})


def _fallback(op: Any, *args: Any, **kwargs: Any) -> Any:
    """Operators that C++ sends to the backend with Python dispatch switched off."""
    gpu()
    return dispatch.dispatch(op, args, kwargs)
