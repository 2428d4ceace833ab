"""Copies between host and device on the real one: which wait, which can be held.

The rules are CUDA's and ATen's (Copy.cu), the same as in `redgreen.virtual.copies`, and so are the
steps: a copy that needs a temporary is made of the parts that Copy.cu makes it of, so that every
part is a step.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager

import torch

from ..faults import Fault
from ..virtual.copies import STAGED, dense
from .session import Session

aten = torch.ops.aten
Seen = Callable[[], AbstractContextManager[object]]  # operators inside are steps again


def copy(
    s: Session, dst: torch.Tensor, src: torch.Tensor, non_blocking: bool, seen: Seen
) -> torch.Tensor:
    """``dst.copy_(src, non_blocking)``; at least one of them is device memory."""
    kind = s.driver.device_type
    to_device, from_device = dst.device.type == kind, src.device.type == kind
    if to_device and from_device:
        accesses = s.blocks.access(dst, False, True) + s.blocks.access(src, True, False)
        s.launch("aten.copy_", lambda: s.driver.copy(dst, src, True), lambda _: accesses)
    elif not _direct(dst, src):
        _through_temporaries(s, dst, src, non_blocking, seen)
    elif to_device:
        _upload(s, dst, src, non_blocking)
    else:
        _download(s, dst, src, non_blocking)
    return dst


def _direct(dst: torch.Tensor, src: torch.Tensor) -> bool:
    """One memcpy does it: same dtype and shape, both dense in the same order."""
    if dst.dtype != src.dtype or dst.shape != src.shape:
        return False
    if dst.is_contiguous() and src.is_contiguous():
        return True
    return dst.stride() == src.stride() and dense(src)


def _through_temporaries(
    s: Session, dst: torch.Tensor, src: torch.Tensor, non_blocking: bool, seen: Seen
) -> None:
    """Copy.cu, copy_requires_temporaries: converts on the device if non_blocking."""
    with seen():
        if (src.device.type == s.driver.device_type) == non_blocking:  # converts on the source
            middle = dst if dst.is_contiguous() else _empty(dst, dst.dtype)
            ready = src.to(dst.dtype).expand(dst.shape).contiguous()
        else:
            same = dst.dtype == src.dtype
            middle = dst if dst.is_contiguous() and same else _empty(dst, src.dtype)
            ready = src.expand(dst.shape).contiguous()
        aten.copy_.default(middle, ready, non_blocking)
        if middle is not dst:
            aten.copy_.default(dst, middle, non_blocking)


def _empty(t: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    return aten.empty.memory_format(list(t.shape), dtype=dtype, device=t.device)  # type: ignore[no-any-return]


def _upload(s: Session, dst: torch.Tensor, src: torch.Tensor, non_blocking: bool) -> None:
    machine, stream = s.machine, s.current()
    block = s.blocks.of(src)
    writes = s.blocks.access(dst, False, True)
    reads = s.blocks.access(src, True, False)

    def call() -> None:
        s.driver.copy(dst, src, non_blocking)

    if stream.capture is not None and not (block is not None and non_blocking):
        call()  # torch refuses it
        return
    if not non_blocking:
        s.synchronous("aten.copy_", call, writes + reads, lands=False)
        return
    large = block is None and dst.numel() * dst.element_size() > STAGED
    if large:
        # cudaMemcpyAsync fills a staging buffer piece by piece and so waits for what comes before:
        # it cannot be held, and nothing of its stream may be.
        s.synchronous("staging", lambda: None, (), lands=False)
        s.machine.edge("copy")
        s.synchronous("aten.copy_", call, writes, lands=False)
        return
    edge, _ = machine.edge("copy")
    s.launch("aten.copy_", call, lambda _: writes + reads)
    if block is not None:
        block.recorded.setdefault(stream.agent, set())
    if (fault := machine.poison(edge)) is not None:
        _poison(s, src, fault)


def _poison(s: Session, src: torch.Tensor, fault: Fault) -> None:
    """The host overwrites the source right after the copy was enqueued: every byte changes."""
    accesses = s.blocks.access(src, False, True)
    if accesses:
        s.host_access("poison", accesses)
    flat = src.detach().view(1) if src.dim() == 0 else src.detach()
    view = flat.view(torch.uint8)
    view.bitwise_xor_(0x5A)
    s.machine.changed[fault] = s.machine.changed.get(fault, 0) + view.numel()


def _download(s: Session, dst: torch.Tensor, src: torch.Tensor, non_blocking: bool) -> None:
    stream, block = s.current(), s.blocks.of(dst)
    accesses = s.blocks.access(src, True, False) + s.blocks.access(dst, False, True)

    def call() -> None:
        s.driver.copy(dst, src, non_blocking)

    if block is not None and non_blocking:
        s.launch("aten.copy_", call, lambda _: accesses)
        block.recorded.setdefault(stream.agent, set())
    elif stream.capture is not None:
        call()  # torch refuses it
    else:
        s.synchronous("aten.copy_", call, accesses)
