"""The models that the engine runs: Qwen3.5 text, dense and mixture of experts."""

from .qwen3_5 import Qwen35

__all__ = ["Qwen35"]
