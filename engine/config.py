"""The engine's configuration; the environment's flags are read here, once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch

from .errors import ConfigError

GRAPH_ROWS = (1, 2, 4, *range(8, 513, 8))


@dataclass(frozen=True, slots=True)
class Flags:
    """Each field ``x`` is the environment variable ``VT_ASYNC_X``, 0 or 1."""

    sched: bool = True  # schedule a step before the output of the one before it is known
    device_mirror: bool = True  # sampled ids stay on the device and feed the next step there
    executor: bool = False  # Option A: staged inputs, two slots, no drain after a graph step
    executor_no_dbuf: bool = False  # test only: one slot although the drain is skipped
    executor_poison: bool = False  # test only: overwrite staged sources after their copies
    executor_trace: bool = False  # print how often the drain was skipped

    @classmethod
    def from_environment(cls, environment: Mapping[str, str] = os.environ) -> Flags:
        """Raises ConfigError for a value other than 0 and 1 and for an unknown VT_ASYNC_ flag."""
        names = {f"VT_ASYNC_{f.name.upper()}": f.name for f in fields(cls)}
        given = {k: v for k, v in environment.items() if k.startswith("VT_ASYNC_")}
        for name, value in given.items():
            if name not in names:
                raise ConfigError(f"{name} is not a flag; the flags are {', '.join(names)}")
            if value not in ("0", "1"):
                raise ConfigError(f"{name}={value!r}; it must be 0 or 1")
        return cls(**{names[name]: value == "1" for name, value in given.items()})


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """Sizes and switches. Left at None, ``depth`` and ``graphs`` follow device and flags."""

    model: Path
    device: str = "cpu"
    block_size: int = 16  # tokens per page
    num_blocks: int = 256  # pages
    max_num_seqs: int = 16  # requests that run at once: state slots
    max_num_batched_tokens: int = 512  # tokens of one step: longer prompts come in chunks
    max_model_len: int = 512  # tokens of prompt and output of one request
    max_waiting: int = 1024  # requests that may wait for a slot
    depth: int | None = None  # steps in flight: 2 with sched, else 1
    ring: int | None = None  # slots per graph key: 2 with executor, else 1
    graphs: bool | None = None  # decode graphs: on CUDA
    graph_query_len: int = 1  # longest uniform query length that graphs take
    flags: Flags = field(default_factory=Flags.from_environment)

    def __post_init__(self) -> None:
        """Fills what is None; raises ConfigError for values that do not fit together."""
        cuda = self.torch_device.type == "cuda"
        if self.torch_device.type not in ("cpu", "cuda"):
            raise ConfigError(f"device {self.device!r}: the engine runs on cpu and cuda")
        defaults = {
            "depth": 2 if cuda and self.flags.sched else 1,
            "graphs": cuda,
            "ring": 2 if self.flags.executor and not self.flags.executor_no_dbuf else 1,
        }
        for name, value in defaults.items():
            if getattr(self, name) is None:
                object.__setattr__(self, name, value)
        for name in _POSITIVE:
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        self._check(cuda)

    def _check(self, cuda: bool) -> None:
        refused = {
            "depth above 1 needs VT_ASYNC_SCHED=1": self.in_flight > 1 and not self.flags.sched,
            "depth above 1 needs device cuda": self.in_flight > 1 and not cuda,
            "graphs need device cuda": self.graphs and not cuda,
            "VT_ASYNC_EXECUTOR=1 needs device cuda and graphs": self.flags.executor
            and not self.graphs,
            "VT_ASYNC_EXECUTOR=1 needs VT_ASYNC_DEVICE_MIRROR=1": self.flags.executor
            and not self.flags.device_mirror,
            "ring above 1 needs VT_ASYNC_EXECUTOR=1": self.slots_per_key > 1
            and not self.flags.executor,
            "VT_ASYNC_EXECUTOR_POISON=1 needs VT_ASYNC_EXECUTOR=1": self.flags.executor_poison
            and not self.flags.executor,
            "max_num_batched_tokens must be at least max_num_seqs": self.max_num_batched_tokens
            < self.max_num_seqs,
            f"max_model_len {self.max_model_len} needs {self.max_columns} blocks": self.num_blocks
            < self.max_columns,
        }
        for reason, refuse in refused.items():
            if refuse:
                raise ConfigError(reason)

    @property
    def torch_device(self) -> torch.device:
        return torch.device(self.device)

    @property
    def in_flight(self) -> int:
        """Steps in flight (``depth``, filled in)."""
        assert self.depth is not None
        return self.depth

    @property
    def slots_per_key(self) -> int:
        """Graph slots per key (``ring``, filled in)."""
        assert self.ring is not None
        return self.ring

    @property
    def max_columns(self) -> int:
        """Block-table columns of the longest request."""
        return -(-self.max_model_len // self.block_size)

    @property
    def graph_rows(self) -> tuple[int, ...]:
        """The numbers of rows that graphs are captured for, ascending."""
        return tuple(rows for rows in GRAPH_ROWS if rows <= self.max_num_seqs)

    def describe(self) -> str:
        """One line with every switch, printed at start."""
        flags = " ".join(
            f"VT_ASYNC_{f.name.upper()}={int(getattr(self.flags, f.name))}" for f in fields(Flags)
        )
        switches = f"depth={self.depth} ring={self.ring} graphs={int(bool(self.graphs))}"
        return f"engine: {self.device} {switches} {flags}"


_POSITIVE = (
    "block_size", "num_blocks", "max_num_seqs", "max_num_batched_tokens", "max_model_len",
    "max_waiting", "depth", "ring", "graph_query_len",
)  # fmt: skip
