"""Text to ids and back, one token at a time."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from .errors import CheckpointError

INCOMPLETE = "\ufffd"  # what a decoder shows for bytes that are not a whole character yet


class Tokenizer:
    """The ``tokenizer.json`` of a model directory."""

    def __init__(self, directory: Path) -> None:
        """Raises CheckpointError if the file is missing or is not a tokenizer."""
        try:
            from tokenizers import Tokenizer as Backend
        except ImportError:
            raise CheckpointError("text needs the package tokenizers; token ids do not") from None
        path = directory / "tokenizer.json"
        if not path.exists():
            raise CheckpointError(f"{path} does not exist; without it prompts must be token ids")
        try:
            self._backend: Any = Backend.from_file(str(path))
        except Exception as error:  # the package raises bare Exception
            raise CheckpointError(f"{path} is not a tokenizer: {error}") from None

    def encode(self, text: str) -> list[int]:
        ids: list[int] = self._backend.encode(text).ids
        return ids

    def decode(self, ids: list[int]) -> str:
        text: str = self._backend.decode(ids, skip_special_tokens=True)
        return text


class TextStream:
    """The text of one output, growing; ends before the first stop string.

    What may still become a stop string or is half a character is held back.
    """

    def __init__(self, tokenizer: Tokenizer, stop: tuple[str, ...] = ()) -> None:
        self._tokenizer, self._stop = tokenizer, stop
        self._ids: list[int] = []
        self._decoded_from, self._decoded_to = 0, 0  # ids whose text has been taken
        self._text, self._sent = "", 0
        self.stopped = False

    def push(self, ids: tuple[int, ...], *, final: bool) -> str:
        """What can be shown now; after ``final`` nothing is held back."""
        self._ids.extend(ids)
        before = self._tokenizer.decode(self._ids[self._decoded_from : self._decoded_to])
        after = self._tokenizer.decode(self._ids[self._decoded_from :])
        if final or not after.endswith(INCOMPLETE):
            self._text += after[len(before) :]
            self._decoded_from, self._decoded_to = self._decoded_to, len(self._ids)
        end = self._end(final)
        shown, self._sent = self._text[self._sent : end], max(end, self._sent)
        return shown

    def _end(self, final: bool) -> int:
        found = [at for stop in self._stop if (at := self._text.find(stop)) >= 0]
        if found:
            self.stopped = True
            return min(found)
        if final or not self._stop:
            return len(self._text)
        return max(self._sent, len(self._text) - max(map(len, self._stop)) + 1)
