"""Subjects for ``redgreen prove``: the engine on a tiny random model, in one configuration each.

They return tokens and every byte of pages and states: tokens alone may hide a damaged state for
many steps. Sizes are as small as the mechanism allows: each edge is judged in runs of its own.
"""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from engine import Faults, Flags
from tests.engine.harness import OFF, ON, config, params, run
from tests.engine.tiny import write_checkpoint

LENGTHS = (6, 9)  # tokens: the first request ends first, so the second one moves to its row


@cache
def _model(kind: str) -> Path:
    """Written once by the process that all runs are forked from."""
    directory = Path(tempfile.mkdtemp(prefix=f"engine-{kind}-"))
    owner = os.getpid()
    atexit.register(lambda: shutil.rmtree(directory) if os.getpid() == owner else None)
    return write_checkpoint(
        directory, kind, vocab_size=32, hidden_size=8, intermediate_size=8, head_dim=4,
        linear_key_head_dim=4, linear_value_head_dim=4,
    )  # fmt: skip


DENSE, MOE = _model("dense"), _model("moe")
PLAIN = Flags(sched=False, device_mirror=False)


def decode(
    lengths: tuple[int, ...] = LENGTHS,
    *,
    model: Path = DENSE,
    prompt: int = 3,
    sampling: dict[str, Any] | None = None,
    faults: Faults | None = None,
    device: str = "cuda",
    **changes: Any,
) -> Any:
    """Requests of one and of ``prompt`` tokens in turn (a single one: of ``prompt`` tokens), to the
    given numbers of output tokens."""
    sizes = {"block_size": 16, "num_blocks": 4, "max_num_seqs": 2, "max_num_batched_tokens": 8,
             "max_model_len": 16}  # fmt: skip
    settings = config(model, device, **(sizes | changes))
    given = [[1 + i, *range(7, 6 + prompt)] if i % 2 else [1 + i] for i in range(len(lengths))]
    if len(lengths) == 1:
        given = [[1, *range(7, 6 + prompt)]]
    each = [params(tokens, **(sampling or {})) for tokens in lengths]
    result = run(settings, given, each, faults=faults)
    return result.tokens, result.cache


def plain() -> Any:
    """Depth 1, no graphs, no mirror: what all others must equal."""
    return decode(flags=PLAIN, graphs=False)


def option_a() -> Any:
    """Depth 2, ring 2: the feature as it is meant to run."""
    return decode(flags=ON)


def default() -> Any:
    """Option A off: copies captured in the graph, and a drain before every refill."""
    return decode(flags=OFF)


def one_slot() -> Any:
    """Option A without its double buffer: a slot is used again by the very next step."""
    return decode(flags=Flags(executor=True, executor_no_dbuf=True))


def depth_3() -> Any:
    """Option A with three steps in flight on a ring of two."""
    return decode((9,), flags=ON, depth=3)


def host_mirror() -> Any:
    """Sampled ids come to the host before each step."""
    return decode(flags=Flags(device_mirror=False))


def mixed_steps() -> Any:
    """Chunks of a prompt beside a decoding request: eager steps in a row."""
    return decode((5, 3), prompt=9, flags=ON, max_num_batched_tokens=4)


def unread_steps() -> Any:
    """A prompt in three chunks: the first two give nothing to read."""
    return decode((3,), prompt=9, flags=ON, max_num_batched_tokens=4)


def penalties() -> Any:
    """The next token depends on ids that have not been read yet."""
    return decode((5, 4), sampling={"repetition_penalty": 3.0}, flags=ON)


def growing_table() -> Any:
    """The block table outgrows the captured graph's columns."""
    return decode((10,), flags=ON, block_size=4, num_blocks=8)


def experts() -> Any:
    """The shared expert runs on a stream of its own, inside the graph."""
    return decode((7,), model=MOE, flags=ON)
