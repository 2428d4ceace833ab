"""The engine's loop: schedule, execute, and read the oldest output once enough are in flight."""

from __future__ import annotations

import sys
from collections import deque

from .checkpoint import Checkpoint, Weights
from .config import EngineConfig
from .counters import Counters
from .errors import ConfigError
from .faults import Faults
from .model_config import ModelConfig
from .output import Output
from .request import Request, TokenOutput
from .runner import ModelRunner
from .scheduler import Scheduler


class EngineCore:
    """One scheduler, one runner, and a queue of up to ``depth`` steps in flight."""

    def __init__(
        self, config: EngineConfig, *, faults: Faults | None = None, weights: Weights | None = None
    ) -> None:
        """Loads ``config.model``, or takes ``weights``; raises CheckpointError and ConfigError."""
        self.config, self.model_config = config, ModelConfig.load(config.model)
        if config.max_model_len > self.model_config.max_position:
            raise ConfigError(
                f"max_model_len is {config.max_model_len}; the model has"
                f" {self.model_config.max_position} positions"
            )
        print(config.describe(), file=sys.stderr)
        if weights is None:
            weights = Checkpoint(config.model, config.torch_device, self.model_config.dtype)
        self.runner = ModelRunner(config, self.model_config, weights, faults or Faults())
        self.scheduler = Scheduler(
            config, self.model_config.vocab_size, self.model_config.eos_token_ids
        )
        self._queue: deque[Output] = deque()

    @property
    def counters(self) -> Counters:
        return self.runner.counters

    def add(self, request: Request) -> None:
        """Raises RequestError; requests that are running are unharmed."""
        self.scheduler.add(request)

    def abort(self, request_id: str) -> bool:
        """Ends a request; steps in flight finish, and what they sample for it is dropped (E57)."""
        return self.scheduler.abort(request_id)

    def has_work(self) -> bool:
        return bool(self._queue) or self.scheduler.has_requests()

    def step(self) -> list[TokenOutput]:
        """Enqueues a step if one can be scheduled, and reads one if ``depth`` are in flight."""
        step = self.scheduler.schedule()
        if step is not None:
            self._queue.append(self.runner.execute(step))
            if len(self._queue) < self.config.in_flight:
                return []
        if not self._queue:
            return []
        output = self._queue.popleft()
        if not self.scheduler.wants(output.step):
            self.runner.drop(output)  # no host wait: nobody will see these ids
            return []
        return self.scheduler.update(output.step, self.runner.read(output))

    def close(self) -> None:
        """Gives up what is in flight and frees the device."""
        while self._queue:
            self.runner.drop(self._queue.popleft())
        self.runner.close()
