"""Who runs in the next step, and what its output means for each request."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from .config import EngineConfig
from .errors import RequestError
from .kv_cache import KVCacheManager
from .request import FinishReason, Request, Status, TokenOutput


@dataclass(frozen=True, slots=True)
class ScheduledRow:
    """One request's part of a step."""

    request: Request
    start: int  # position of the first token to compute
    count: int  # tokens
    carried: bool  # its one token was sampled by an earlier step and may be on the device only
    samples: bool  # it reaches the last token, so what is sampled counts (E58)
    fresh: bool  # first step since it was admitted: its state slot has another owner's state


@dataclass(frozen=True, slots=True)
class ScheduledStep:
    """Rows, carried ones first, then single tokens, then longer chunks."""

    rows: tuple[ScheduledRow, ...]

    @property
    def tokens(self) -> int:
        return sum(row.count for row in self.rows)


class Scheduler:
    """Continuous batching: running requests first, then waiting ones, within a token budget."""

    def __init__(self, config: EngineConfig, vocab_size: int, eos_ids: Sequence[int]) -> None:
        self._config, self._vocab_size, self._eos_ids = config, vocab_size, frozenset(eos_ids)
        self._cache = KVCacheManager(config.num_blocks, config.block_size, config.max_num_seqs)
        self.waiting: deque[Request] = deque()
        self.running: list[Request] = []
        self.preemptions = 0

    @property
    def cache(self) -> KVCacheManager:
        return self._cache

    def add(self, request: Request) -> None:
        """Queues a request; raises RequestError if it can never run or the queue is full."""
        limit, length = self._config.max_model_len, len(request.prompt_ids)
        if length == 0:
            raise RequestError(f"request {request.id}: the prompt has no tokens")
        if length >= limit:
            raise RequestError(
                f"request {request.id}: a prompt of {length} tokens leaves no room in a context"
                f" of {limit}; shorten it or raise max_model_len"
            )
        for token in request.prompt_ids:
            if not 0 <= token < self._vocab_size:
                raise RequestError(
                    f"request {request.id}: token id {token} is outside the vocabulary of"
                    f" {self._vocab_size}"
                )
        if any(request.id == other.id for other in (*self.waiting, *self.running)):
            raise RequestError(f"request {request.id}: this id is in use")
        if len(self.waiting) >= self._config.max_waiting:
            raise RequestError(
                f"request {request.id}: {len(self.waiting)} requests wait already; try again"
                " later or raise max_waiting"
            )
        self.waiting.append(request)

    def abort(self, request_id: str) -> bool:
        """Finishes a request now; False if there is none of this id."""
        for request in (*self.running, *self.waiting):
            if request.id == request_id:
                self._finish(request, FinishReason.ABORT)
                return True
        return False

    def has_requests(self) -> bool:
        return bool(self.waiting or self.running)

    # -- before a step ----------------------------------------------------------------------------

    def schedule(self) -> ScheduledStep | None:
        """The next step, or None if nobody can run before an output has been seen."""
        budget = self._config.max_num_batched_tokens
        rows, preempted = self._schedule_running(budget)
        if not preempted:
            rows += self._schedule_waiting(budget - sum(row.count for row in rows))
        if not rows:
            return None
        return ScheduledStep(tuple(sorted(rows, key=lambda row: (not row.carried, row.count > 1))))

    def _schedule_running(self, budget: int) -> tuple[list[ScheduledRow], bool]:
        rows: list[ScheduledRow] = []
        preempted = False
        for request in list(self.running):
            if request.status is not Status.RUNNING:
                continue  # it was preempted for one before it
            count = min(request.num_tokens - request.num_computed, budget)
            if count < 1 or self._will_end(request):
                continue
            while not self._cache.grow(request.blocks, request.num_computed + count):
                victim = self.running[-1]  # the loop has not come to it yet, or it is `request`
                preempted = True
                self._preempt(victim)
                if victim is request:
                    break
            else:
                budget -= count
                rows.append(self._advance(request, count, fresh=False))
        return rows, preempted

    def _will_end(self, request: Request) -> bool:
        """Whether the samples in flight exhaust the request's length."""
        sampled = len(request.output_ids) + request.placeholders
        full = request.num_tokens >= self._config.max_model_len
        return request.placeholders > 0 and (sampled >= request.params.max_tokens or full)

    def _schedule_waiting(self, budget: int) -> list[ScheduledRow]:
        rows: list[ScheduledRow] = []
        while self.waiting and budget > 0 and self._cache.free_slots:
            request = self.waiting[0]
            if request.placeholders:
                break  # E59: preempted with a sample in flight; recomputing needs that token
            count = min(request.num_tokens, budget)
            if not self._cache.grow(request.blocks, count):
                break
            self.waiting.popleft()
            request.state_slot = self._cache.take_slot()
            request.status, request.prefill_len = Status.RUNNING, request.num_known
            self.running.append(request)
            budget -= count
            rows.append(self._advance(request, count, fresh=True))
        return rows

    def _advance(self, request: Request, count: int, *, fresh: bool) -> ScheduledRow:
        start = request.num_computed
        request.num_computed += count
        samples = request.num_computed == request.num_tokens
        request.placeholders += samples  # E59
        carried = start >= request.prefill_len
        return ScheduledRow(request, start, count, carried, samples, fresh)

    def _preempt(self, request: Request) -> None:
        """Gives pages and state back; it starts again with the tokens it has.

        E59: samples in flight stay counted and are delivered; it waits for them.
        """
        self.running.remove(request)
        self._release(request)
        request.status, request.num_computed = Status.WAITING, 0
        request.preemptions += 1
        self.preemptions += 1
        self.waiting.appendleft(request)

    def _release(self, request: Request) -> None:
        if request.state_slot >= 0:
            self._cache.free(request.blocks, request.state_slot)
            request.state_slot = -1

    def _finish(self, request: Request, reason: FinishReason) -> None:
        if request.status is Status.RUNNING:
            self.running.remove(request)
        else:
            self.waiting.remove(request)
        self._release(request)
        request.status, request.finish_reason = Status.FINISHED, reason

    # -- after a step -----------------------------------------------------------------------------

    def wants(self, step: ScheduledStep) -> bool:
        """Whether a step sampled anything that counts: not chunks of prompts, not zombies."""
        return any(self._counts(row) for row in step.rows)

    def _counts(self, row: ScheduledRow) -> bool:
        return row.samples and row.request.status is not Status.FINISHED

    def update(self, step: ScheduledStep, sampled: Iterable[int]) -> list[TokenOutput]:
        """Appends what the step sampled. Rows of finished requests are dropped (E57)."""
        outputs = []
        for row, token in zip(step.rows, sampled, strict=True):
            request = row.request
            if not self._counts(row):
                continue
            request.placeholders -= 1  # E59
            request.output_ids.append(token)
            if reason := self._reason(request, token):
                self._finish(request, reason)
            outputs.append(TokenOutput(request.id, (token,), request.finish_reason))
        return outputs

    def _reason(self, request: Request, token: int) -> FinishReason | None:
        params = request.params
        if token in params.stop_token_ids:
            return FinishReason.STOP
        if token in self._eos_ids and not params.ignore_eos:
            return FinishReason.STOP
        full = request.num_known >= self._config.max_model_len
        if len(request.output_ids) >= params.max_tokens or full:
            return FinishReason.LENGTH
        return None
