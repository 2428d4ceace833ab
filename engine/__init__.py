"""Asynchronous decoding of Qwen3.5 text models: an LLM engine whose every sync edge is named."""

from .async_llm import AsyncLLM
from .config import EngineConfig, Flags
from .errors import CheckpointError, ConfigError, DeviceStateError, EngineError, RequestError
from .faults import Faults
from .frontend import Chunk
from .llm import LLM, Completion
from .request import FinishReason, SamplingParams

__all__ = [
    "LLM",
    "AsyncLLM",
    "CheckpointError",
    "Chunk",
    "Completion",
    "ConfigError",
    "DeviceStateError",
    "EngineConfig",
    "EngineError",
    "Faults",
    "FinishReason",
    "Flags",
    "RequestError",
    "SamplingParams",
]
