"""A program as torch.cuda source."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from .program import (
    Allocate,
    Buffer,
    Copy,
    Fetch,
    Free,
    HostRead,
    HostWrite,
    Kernel,
    Part,
    Program,
    Query,
    Record,
    RecordStream,
    Repeat,
    Simple,
    SyncDevice,
    SyncEvent,
    SyncStream,
    Wait,
    WaitStream,
)

WIDTH = {"int64": 1, "float32": 2}  # elements in a piece


@dataclass(frozen=True, slots=True)
class Source:
    """A module with one function, ``program``, and the line of each sync call's site."""

    text: str
    lines: dict[int, int]  # line -> site


def render(program: Program) -> Source:
    return _Renderer(program).source()


class _Renderer:
    def __init__(self, program: Program) -> None:
        self._program = program
        self._width = WIDTH[program.dtype]
        self._text = ["import torch", "", "", "def program():"]
        self._lines: dict[int, int] = {}
        self._site = 0

    def source(self) -> Source:
        self._head()
        for statement in self._program.body:
            if isinstance(statement, Repeat):
                self._line(f"for _ in range({statement.times}):")
                for inner in statement.body:
                    self._statement(inner, "    ")
            else:
                self._statement(statement, "")
        pinned, device = self._program.returned()
        self._line(f"return {', '.join(['out', *pinned, *device])}")
        return Source("\n".join(self._text) + "\n", self._lines)

    def _line(self, text: str) -> None:
        self._text.append(f"    {text}")

    def _head(self) -> None:
        self._line("s0 = torch.cuda.current_stream()")
        for i in range(1, self._program.streams):
            self._line(f"s{i} = torch.cuda.Stream()")
        for i in range(self._program.events):
            self._line(f"e{i} = torch.cuda.Event()")
        for buffer in self._program.buffers:
            self._buffer(buffer)
        self._line("out = []")

    def _buffer(self, buffer: Buffer) -> None:
        form = f"({self._width * self._program.pieces},), {buffer.value}"
        full = f"torch.full({form}, dtype=torch.{self._program.dtype}"
        if buffer.where == "device":
            self._line(f"with torch.cuda.stream(s{buffer.home}):")
            self._line(f"    {buffer.name} = {full}).to('cuda')")
        else:
            pin = ", pin_memory=True" if buffer.where == "pinned" else ""
            self._line(f"{buffer.name} = {full}{pin})")

    def _statement(self, statement: Simple, indent: str) -> None:
        for text in self._texts(statement):
            self._line(indent + text)
        self._lines[len(self._text)] = self._site  # the last line is the call
        self._site += 1

    def _texts(self, s: Simple) -> Iterator[str]:
        match s:
            case Kernel() | Copy() | Fetch():
                yield f"with torch.cuda.stream(s{s.stream}):"
                yield f"    {self._device(s)}"
            case HostRead():
                yield f"out.append({self._part(s.src)}.tolist())"
            case HostWrite():
                yield f"{self._part(s.dst)}.fill_({s.value})"
            case Allocate():
                size = self._width * self._program.pieces
                yield f"with torch.cuda.stream(s{s.stream}):"
                yield (f"    {s.buffer} = torch.empty({size}, dtype=torch.{self._program.dtype}, "
                       "device='cuda')")
            case Query(event, "unless"):
                yield f"if not e{event}.query():"
                yield f"    e{event}.synchronize()"
            case Query(event, "poll"):
                yield f"while not e{event}.query():"
                yield "    pass"
            case _:
                yield _call(s)

    def _device(self, s: Kernel | Copy | Fetch) -> str:
        if isinstance(s, Fetch):
            return f"out.append({self._part(s.src)}.tolist())"
        dst = self._part(s.dst)
        if isinstance(s, Copy):
            late = ", non_blocking=True" if s.non_blocking else ""
            return f"{dst}.copy_({self._part(s.src)}{late})"
        src = self._part(s.src) if s.src else ""
        return {
            "fill": f"{dst}.fill_({s.k})",
            "add": f"{dst}.add_({s.k})",
            "mul": f"torch.mul({src}, {s.k}, out={dst})",
            "gather": f"{dst}.add_({src})",
            "copy": f"{dst}.copy_({src})",
        }[s.op]

    def _part(self, part: Part) -> str:
        if (part.low, part.high) == (0, self._program.pieces):
            return part.buffer
        return f"{part.buffer}[{part.low * self._width}:{part.high * self._width}]"


def _call(s: Simple) -> str:
    match s:
        case Record():
            return f"e{s.event}.record(s{s.stream})"
        case Wait():
            return f"s{s.stream}.wait_event(e{s.event})"
        case WaitStream():
            return f"s{s.stream}.wait_stream(s{s.awaited})"
        case SyncEvent():
            return f"e{s.event}.synchronize()"
        case SyncStream():
            return f"s{s.stream}.synchronize()"
        case SyncDevice():
            return "torch.cuda.synchronize()"
        case RecordStream():
            return f"{s.buffer}.record_stream(s{s.stream})"
        case Free():
            return f"del {s.buffer}"
        case Query(event, "ask"):
            return f"out.append(e{event}.query())"
    raise AssertionError(s)
