"""Rule 11, end to end: what C code does with an array of pinned memory, with and without the sync.

Each use reads the destination or writes the source of a copy. Without the sync the program must be
refuted, whether or not the use itself was seen; with it the proof says what it assumes.
"""

from __future__ import annotations

import ctypes
import hashlib
import io
import os
import socket
import struct
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

import redgreen
from redgreen import Proof
from redgreen.virtual import VirtualGPU
from redgreen.virtual.machine import Diverged
from tests.child import in_child

N = 8
NEW = bytes(range(4 * N))


def read_into_a_file(array: Any) -> bytes:
    reader, writer = os.pipe()
    with os.fdopen(writer, "wb") as file:
        file.write(array)
    with os.fdopen(reader, "rb") as file:
        return file.read()


def read_by_a_hash(array: Any) -> bytes:
    return hashlib.sha256(array).digest()


def read_through_a_view(array: Any) -> bytes:
    return bytes(memoryview(array))


def read_by_ctypes(array: Any) -> bytes:
    return ctypes.string_at(array.ctypes.data, 4 * N)


def read_by_numpy_random(array: Any) -> list[float]:
    result: list[float] = np.random.default_rng(0).normal(array, 0).tolist()
    return result


def write_from_a_file(array: Any) -> None:
    io.BytesIO(NEW).readinto(array)


def write_from_a_socket(array: Any) -> None:
    here, there = socket.socketpair()
    with here, there:
        here.sendall(NEW)
        there.recv_into(array)


def write_by_struct(array: Any) -> None:
    struct.pack_into("f", array, 4, 5.0)


def write_through_a_view(array: Any) -> None:
    memoryview(array).cast("B")[:] = NEW


def write_by_ctypes(array: Any) -> None:
    ctypes.memmove(array.ctypes.data, NEW, 4 * N)


def write_by_numpy_random(array: Any) -> None:
    np.random.default_rng(0).random(out=array, dtype=np.float32)


Use = Callable[[Any], Any]
# C code asks for plain bytes: an access like any other.
SEEN: list[Use] = [read_into_a_file, read_by_a_hash, write_from_a_file, write_from_a_socket,
                   write_by_struct]  # fmt: skip
# Something keeps the address, or bytes change that nobody was seen to write.
ESCAPED: list[Use] = [read_through_a_view, read_by_ctypes, write_through_a_view, write_by_ctypes,
                      write_by_numpy_random]  # fmt: skip
# C code takes the pointer and leaves no trace.
SUSPECTED: list[Use] = [read_by_numpy_random]


def program(use: Use, sync: bool) -> Any:
    """A copy, and then the host uses the array of its pinned end."""
    pinned, device = torch.ones(N, pin_memory=True), torch.full((N,), 2.0, device="cuda")
    if use.__name__.startswith("read"):
        pinned.copy_(device, non_blocking=True)
    else:
        device.copy_(pinned, non_blocking=True)
    if sync:
        torch.cuda.synchronize()
    array = pinned.numpy()  # handed out
    return use(array), device.cpu()


def messages(proof: Proof, kind: str) -> list[str]:
    return [d.message for d in proof.diagnostics if d.kind == kind]


def line_of(function: Callable[..., Any], comment: str) -> str:
    code = function.__code__
    with open(code.co_filename) as file:
        lines = file.read().splitlines()
    (number,) = (i for i, line in enumerate(lines, 1) if line.endswith(f"  # {comment}"))
    return f"{code.co_filename}:{number}"


@pytest.mark.parametrize("use", SEEN, ids=lambda use: use.__name__)
def test_what_is_seen_races(use: Use) -> None:
    proof = redgreen.prove(program, use, False)
    assert proof.green.verdict == "refuted"
    hazards = {"read": "HOST-RAW", "write": "HOST-WAR"}
    assert [r.hazard for r in proof.green.races] == [hazards[use.__name__.split("_")[0]]]
    assert not messages(proof, "untracked-host-access")


@pytest.mark.parametrize("use", [*ESCAPED, *SUSPECTED], ids=lambda use: use.__name__)
def test_what_is_not_seen_is_refuted_by_its_bytes(use: Use) -> None:
    proof = redgreen.prove(program, use, False)
    assert proof.green.verdict == "refuted"
    (message,) = messages(proof, "untracked-host-access")
    assert f"the array handed out at {line_of(program, 'handed out')}" in message


@pytest.mark.parametrize("use", [*SEEN, *ESCAPED, *SUSPECTED], ids=lambda use: use.__name__)
def test_with_the_sync_the_proof_says_what_it_assumes(use: Use) -> None:
    proof = redgreen.prove(program, use, True)
    assert proof.green.verdict == "proved"
    assert [e.verdict for e in proof.edges] == ["load-bearing"]
    assert bool(messages(proof, "escaped")) == (use in ESCAPED)


# -- no noise --------------------------------------------------------------------------------------


def followed() -> Any:
    """All of it NumPy's own functions, and torch's, on two arrays that live to the end."""
    source, result = torch.zeros(N, pin_memory=True), torch.zeros(N, pin_memory=True)
    inputs, outputs = source.numpy(), result.numpy()
    total = 0.0
    for step in range(3):
        inputs[:] = step
        np.add(inputs, 1, out=inputs)
        inputs[step:].sort()
        result.copy_(source.to("cuda", non_blocking=True), non_blocking=True)
        torch.cuda.synchronize()
        outputs *= 2
        torch.from_numpy(outputs)[:2].fill_(7)
        np.put(outputs, [3], step)
        total += float(outputs.sum())
    return total, outputs.tolist()


def test_what_numpy_does_is_followed_without_a_word() -> None:
    proof = redgreen.prove(followed)
    assert proof.green.verdict == "proved"
    assert not messages(proof, "escaped") and not messages(proof, "untracked-host-write")


def freed() -> Any:
    """The block is free, and taken again, before the run ends."""
    array = torch.zeros(N, pin_memory=True).numpy()
    np.random.default_rng(0).random(out=array, dtype=np.float32)
    del array
    return torch.zeros(N, device="cuda").cpu()


def test_bytes_are_compared_before_the_block_is_taken_again() -> None:
    def work() -> list[str]:
        with VirtualGPU() as virtual:
            freed()
            torch.ones(N, pin_memory=True)
            return virtual.finish().trace.escapes

    (escape,) = in_child(work)
    assert escape.startswith("pinned 32 B by C code with the array handed out at")


# -- requests that fail, runs that end -------------------------------------------------------------


@pytest.mark.parametrize("statement", [
    "hashlib.sha256(a[::2])", "io.BytesIO().write(a[::2])", "b''.join([a[::2]])",
    "io.BytesIO(NEW).readinto(read_only)", "struct.pack_into('f', a[::2], 0, 1.0)",
])  # fmt: skip
def test_a_request_that_numpy_refuses_raises(statement: str) -> None:
    def work() -> list[float]:
        with VirtualGPU():
            a = torch.ones(N, pin_memory=True).numpy()
            read_only = a[:]
            read_only.flags.writeable = False
            with pytest.raises((TypeError, ValueError, BufferError, SystemError)):
                eval(statement, {**globals(), "a": a, "read_only": read_only})
            result: list[float] = a.tolist()
            return result

    assert in_child(work) == [1.0] * N


def test_a_run_that_takes_too_many_steps_ends_though_only_c_code_makes_them() -> None:
    def work() -> bool:
        with VirtualGPU(step_limit=20):
            array = torch.ones(N, pin_memory=True).numpy()
            with pytest.raises(Diverged):
                for _ in range(100):
                    hashlib.sha256(array)
                array.sum()
        return True

    assert in_child(work)
