"""The asynchronous front end: a thread runs the engine, callers read streams of chunks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from itertools import count
from queue import SimpleQueue
from threading import Lock, Thread
from types import TracebackType

from .checkpoint import Weights
from .config import EngineConfig
from .core import EngineCore
from .errors import EngineError
from .faults import Faults
from .frontend import Chunk, Frontend, Prompt
from .request import SamplingParams


class AsyncLLM:
    """Requests come and go while others run. An async context manager: leaving it closes it."""

    def __init__(
        self, config: EngineConfig, *, faults: Faults | None = None, weights: Weights | None = None
    ) -> None:
        """Raises CheckpointError and ConfigError."""
        self.core = EngineCore(config, faults=faults, weights=weights)
        self._frontend, self._ids = Frontend(self.core), count()
        self._commands: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._readers: dict[str, _Reader] = {}
        self._open = True
        self._stopped: EngineError | None = None
        self._lock = Lock()  # no command comes in once `_stop` has emptied the queue
        self._thread = Thread(target=self._run, name="engine", daemon=True)
        self._thread.start()

    async def generate(
        self, prompt: Prompt, params: SamplingParams, request_id: str | None = None
    ) -> AsyncIterator[Chunk]:
        """Chunks until one has a finish reason; a caller who stops reading aborts the request.

        Raises RequestError if it cannot run, EngineError if the engine has stopped.
        """
        name = request_id or f"request-{next(self._ids)}"
        reader = _Reader(asyncio.get_running_loop())
        self._submit(lambda: self._add(name, prompt, params, reader))
        finished = False
        try:
            while not finished:
                chunk = await reader.next()
                finished = chunk.finish_reason is not None
                yield chunk
        finally:
            if not finished:
                self._submit(lambda: self._abort(name, reader))

    async def close(self) -> None:
        """Ends all requests and frees the device."""
        self._submit(self._leave)
        await asyncio.to_thread(self._thread.join)

    def _submit(self, command: Callable[[], None]) -> None:
        with self._lock:
            if self._stopped is None:
                self._commands.put(command)
                return
        command()  # the thread is gone: a new request is refused, the rest does nothing

    async def __aenter__(self) -> AsyncLLM:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        await self.close()

    # -- the engine's thread ----------------------------------------------------------------------

    def _run(self) -> None:
        failure: BaseException | None = None
        try:
            while self._open:
                if self._commands.empty() and self.core.has_work():
                    self._deliver(self._frontend.step())
                else:
                    self._commands.get()()
            self.core.close()
        except BaseException as error:  # whatever it is, every reader must learn of it
            failure = error
        self._stop(failure)

    def _leave(self) -> None:
        self._open = False

    def _stop(self, failure: BaseException | None) -> None:
        reason = EngineError(f"the engine has stopped: {failure or 'it was closed'}")
        reason.__cause__ = failure
        with self._lock:
            self._stopped = reason
        while not self._commands.empty():
            self._commands.get()()
        for reader in self._readers.values():
            reader.fail(reason)
        self._readers.clear()

    def _add(self, name: str, prompt: Prompt, params: SamplingParams, reader: _Reader) -> None:
        if self._stopped is not None:
            reader.fail(self._stopped)
            return
        try:
            self._frontend.add(name, prompt, params)
        except EngineError as error:
            reader.fail(error)
        else:
            self._readers[name] = reader

    def _abort(self, name: str, reader: _Reader) -> None:
        """A later request may have taken the name of one that has finished."""
        if self._readers.get(name) is reader:
            del self._readers[name]
            self._frontend.abort(name)

    def _deliver(self, chunks: list[Chunk]) -> None:
        for chunk in chunks:
            reader = self._readers[chunk.request_id]
            if chunk.finish_reason is not None:
                del self._readers[chunk.request_id]
            reader.put(chunk)


class _Reader:
    """One request's chunks, on the way from the engine's thread to a caller's event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop, self._news = loop, asyncio.Event()
        self._pending: Chunk | None = None
        self._error: EngineError | None = None

    def put(self, chunk: Chunk) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._merge, chunk)

    def fail(self, error: EngineError) -> None:
        """From any thread."""
        self._loop.call_soon_threadsafe(self._raise, error)

    async def next(self) -> Chunk:
        """All chunks that have come since the last call, as one; raises what failed."""
        await self._news.wait()
        self._news.clear()
        if self._pending is None:
            assert self._error is not None
            raise self._error
        chunk, self._pending = self._pending, None
        if self._error is not None:
            self._news.set()
        return chunk

    def _merge(self, chunk: Chunk) -> None:
        self._pending = chunk if self._pending is None else self._pending + chunk
        self._news.set()

    def _raise(self, error: EngineError) -> None:
        self._error = error
        self._news.set()
