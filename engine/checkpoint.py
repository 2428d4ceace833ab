"""Tensors of a model directory: ``model.safetensors``, in one file or in shards."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Protocol

import torch

from .errors import CheckpointError

INDEX = "model.safetensors.index.json"
SINGLE = "model.safetensors"


class Weights(Protocol):
    """Where a model takes its tensors from."""

    def tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The tensor ``name``; raises CheckpointError if there is none of this shape."""

    def has(self, name: str) -> bool:
        """Whether there is a tensor ``name``."""

    def prefix(self) -> str:
        """What stands in front of the names of the text model's tensors."""


class Checkpoint:
    """Reads tensors by name onto one device, each checked against the shape that is needed."""

    def __init__(self, directory: Path, device: torch.device, dtype: torch.dtype) -> None:
        """Opens every file of ``directory``; raises CheckpointError if one cannot be opened."""
        self._directory, self._device, self._dtype = directory, device, dtype
        self._files: dict[str, Any] = {}
        for file in self._file_names():
            opened = _open(directory / file)
            self._files.update(dict.fromkeys(opened.keys(), opened))

    def _file_names(self) -> list[str]:
        index = self._directory / INDEX
        if not index.exists():
            return [SINGLE]
        try:
            return sorted(set(json.loads(index.read_text())["weight_map"].values()))
        except (ValueError, KeyError) as error:
            raise CheckpointError(f"{index} is not an index of shards: {error}") from None

    def has(self, name: str) -> bool:
        return name in self._files

    def tensor(self, name: str, shape: tuple[int, ...]) -> torch.Tensor:
        """The tensor ``name`` in the model's dtype on its device.

        Raises CheckpointError if it is missing, has another shape, or is quantized.
        """
        if name not in self._files:
            raise CheckpointError(f"{self._directory} has no tensor {name}")
        loaded: torch.Tensor = self._files[name].get_tensor(name)
        if tuple(loaded.shape) != shape:
            raise CheckpointError(
                f"{self._directory}: {name} has shape {list(loaded.shape)}, not {list(shape)}"
            )
        if not loaded.is_floating_point() or loaded.dtype.itemsize < 2:
            raise CheckpointError(f"{self._directory}: {name} is quantized ({loaded.dtype})")
        return loaded.to(device=self._device, dtype=self._dtype)

    def prefix(self) -> str:
        """What stands in front of the text model's names: it may be part of a larger model."""
        for prefix in ("model.", "model.language_model."):
            if f"{prefix}embed_tokens.weight" in self._files:
                return prefix
        raise CheckpointError(f"{self._directory} has no tensor model.embed_tokens.weight")


class Scope:
    """The tensors of a checkpoint whose names begin alike."""

    def __init__(self, weights: Weights, prefix: str) -> None:
        self._weights, self._prefix = weights, prefix

    def __call__(self, name: str, *shape: int) -> torch.Tensor:
        return self._weights.tensor(self._prefix + name, shape)

    def has(self, name: str) -> bool:
        return self._weights.has(self._prefix + name)

    def under(self, name: str) -> Scope:
        return Scope(self._weights, f"{self._prefix}{name}.")


def _open(path: Path) -> Any:
    try:
        from safetensors import SafetensorError, safe_open
    except ImportError:
        raise CheckpointError("reading a checkpoint needs the package safetensors") from None
    try:
        return safe_open(path, framework="pt", device="cpu")
    except (OSError, SafetensorError) as error:
        raise CheckpointError(f"{path} cannot be read: {error}") from None
