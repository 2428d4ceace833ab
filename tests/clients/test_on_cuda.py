"""The race that redgreen finds in transformers' continuous batching, shown on a real device.

The library fills its static inputs on the default stream and copies into them on another one. Here
the default stream is busy before the fills, which any other work of a program may do to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import torch

pytestmark = pytest.mark.cuda

# Clock cycles, 5 to 200 ms: the fills have to land while tokens are made.
SPINS = [10_000_000 * 2**i for i in range(6)]


@contextmanager
def _busy_before_fills(spin: int) -> Iterator[None]:
    from transformers.generation.continuous_batching.input_outputs import ContinuousBatchingIOs

    reset = ContinuousBatchingIOs._reset_static_tensors

    def busy(self: ContinuousBatchingIOs, full_reset: bool = False) -> None:
        if full_reset:
            torch.cuda._sleep(spin)
        reset(self, full_reset)

    ContinuousBatchingIOs._reset_static_tensors = busy
    try:
        yield
    finally:
        ContinuousBatchingIOs._reset_static_tensors = reset


@pytest.mark.parametrize("graphs", [False, True], ids=["eager", "graphs"])
def test_a_busy_default_stream_changes_the_tokens(graphs: bool) -> None:
    from examples import continuous_batching as client

    run: Callable[[], list[list[int]]] = client.graphs if graphs else client.eager
    joined = client.graphs_joined if graphs else client.eager_joined
    right = run()
    print("as it is:", right)
    changed = 0
    for spin in SPINS:
        with _busy_before_fills(spin):
            tokens = run()
            assert joined() == right
        print(f"default stream busy for {spin} cycles:", tokens)
        changed += tokens != right
    assert changed
