"""A request: what was asked for, and how far it has come."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum

from .errors import RequestError

GREEDY = 0.0


@dataclass(frozen=True, slots=True)
class SamplingParams:
    """How tokens are chosen and when to stop. The default is greedy."""

    max_tokens: int = 16
    temperature: float = GREEDY
    top_k: int = 0  # 0: all
    top_p: float = 1.0
    seed: int = 0
    repetition_penalty: float = 1.0  # divides the logits of tokens of prompt and output
    presence_penalty: float = 0.0  # subtracted once for tokens of the output
    frequency_penalty: float = 0.0  # subtracted for each occurrence in the output
    stop: tuple[str, ...] = ()  # the text ends before these
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        """Raises RequestError for a value outside its range."""
        ranges = {
            "max_tokens": (self.max_tokens >= 1, "at least 1"),
            "temperature": (self.temperature >= 0.0, "at least 0 (0 is greedy)"),
            "top_k": (self.top_k >= 0, "at least 0 (0 is all)"),
            "top_p": (0.0 < self.top_p <= 1.0, "above 0 and at most 1"),
            "repetition_penalty": (self.repetition_penalty > 0.0, "above 0"),
            "stop": (all(self.stop), "without an empty string"),
        }
        for name, (good, wanted) in ranges.items():
            if not good:
                raise RequestError(f"{name} is {getattr(self, name)}; it must be {wanted}")

    @property
    def greedy(self) -> bool:
        return self.temperature == GREEDY

    @property
    def penalized(self) -> bool:
        """Whether the next token depends on the ids of the tokens before it."""
        return (self.repetition_penalty, self.presence_penalty, self.frequency_penalty) != (1, 0, 0)


class Status(Enum):
    WAITING = "waiting"
    RUNNING = "running"
    FINISHED = "finished"


class FinishReason(Enum):
    STOP = "stop"
    LENGTH = "length"
    ABORT = "abort"


@dataclass(slots=True, eq=False)
class Request:
    """Compared by identity: the id of a finished request may be used again."""

    id: str
    prompt_ids: tuple[int, ...]
    params: SamplingParams
    output_ids: list[int] = field(default_factory=list)
    status: Status = Status.WAITING
    finish_reason: FinishReason | None = None
    num_computed: int = 0  # tokens in cache and state once all scheduled steps have run
    prefill_len: int = 0  # tokens known when it was admitted last; later ones are carried
    placeholders: int = 0  # sampled by steps whose output has not been seen
    blocks: list[int] = field(default_factory=list)
    state_slot: int = -1
    preemptions: int = 0

    @property
    def num_known(self) -> int:
        """Tokens that the host knows."""
        return len(self.prompt_ids) + len(self.output_ids)

    @property
    def num_tokens(self) -> int:
        """Tokens known or being sampled."""
        return self.num_known + self.placeholders

    def token_ids(self, start: int, stop: int) -> list[int]:
        """Known tokens at positions ``start`` to ``stop``."""
        split = len(self.prompt_ids)
        if stop <= split:
            return list(self.prompt_ids[start:stop])
        output = self.output_ids[max(0, start - split) : stop - split]
        return [*self.prompt_ids[start:split], *output]


@dataclass(frozen=True, slots=True)
class TokenOutput:
    """What a step brought for one request: a private snapshot (E46)."""

    request_id: str
    new_ids: tuple[int, ...]
    finish_reason: FinishReason | None = None
