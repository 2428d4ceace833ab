"""A run as text: everything needed to do it again, to be pasted into a terminal or an issue.

Steps are named by label and edges by basename, line and source text, so that a token survives a
moved checkout and small edits. It says nothing about the machine that it was made on.
"""

from __future__ import annotations

import base64
import binascii
import json
import os
import re
import sys
import zlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import PurePath
from typing import Any, Literal

from .faults import ACTIONS, Action, Fault
from .schedule import SERIAL, Order, Schedule, Torn
from .subject import UsageError
from .trace import EdgeSite, Site

VERSION = "rg1."
DIGITS = 12  # of the digests, in hexadecimal: enough to tell the outcomes of one program apart

# Words that most tokens contain; a token is a few hundred bytes, so this halves it. Part of the
# version: a change here is a new VERSION.
_WORDS = (
    b'"random","first","last","lazy","serial","native","poison","drop","copy","record_stream",'
    b'"torch.cuda.synchronize","stream.synchronize","event.synchronize","record","wait_stream",'
    b'"wait_event","torch/cuda/streams.py","torch/cuda/__init__.py","stream 1","stream 2",'
    b'.synchronize()",.record()",.wait(.wait_event(.wait_stream(main,:copy_#:mul#:add#:mm#0","0",'
    b'[["serial","",0,[["",[]],[["drop",["wait_event","'
)


class NotApplicable(UsageError):
    """The token is not one of this version, or not one of this program."""


@dataclass(frozen=True, slots=True)
class Token:
    """What a replay needs, and what it should find."""

    schedule: Schedule
    faults: frozenset[Fault]
    program: str  # "file.py:function", without directories
    hash_seed: str  # PYTHONHASHSEED of the run, or "random"
    allocator: str
    base: str = ""  # start of the digest of the outcome without faults, in serial order
    outcome: str = ""  # start of the digest of the outcome of this run

    def __str__(self) -> str:
        return encode(self)


class Tokens:
    """Makes the tokens of one proof; ``digests`` are the outcomes of its runs so far."""

    def __init__(
        self, program: str, allocator: str, digests: Mapping[tuple[Schedule, frozenset[Fault]], str]
    ) -> None:
        self._program, self._allocator, self._digests = program, allocator, digests

    def __call__(self, schedule: Schedule, faults: frozenset[Fault]) -> str:
        outcome = self._digests.get((schedule, faults), "")
        base = self._digests.get((SERIAL, frozenset()), "")
        return encode(Token(schedule, faults, self._program, hash_seed(), self._allocator,
                            base[:DIGITS], outcome[:DIGITS]))


def encode(token: Token) -> str:
    """One word of printable ASCII that `decode` understands."""
    s = token.schedule
    rest: list[object] = [[[torn.step, torn.how] for torn in s.torn], s.late,
                          [[o.first, o.second] for o in s.calls]]
    while rest and not rest[-1]:
        rest.pop()
    content = [
        [s.policy, s.stream, s.seed, [[o.first, o.second] for o in s.orders],
         [[label, int(yes)] for label, yes in s.choices], *rest],
        sorted([f.action, _pack_edge(f.edge), *([list(f.uses)] if f.uses else [])]
               for f in token.faults),
        token.program, token.hash_seed, token.allocator, token.base, token.outcome,
    ]
    text = json.dumps(content, separators=(",", ":"), ensure_ascii=False).encode()
    packer = zlib.compressobj(9, zdict=_WORDS)
    return VERSION + base64.urlsafe_b64encode(packer.compress(text) + packer.flush()).decode()


def decode(text: str) -> Token:
    """The token in ``text``; blanks and continuation marks of a wrapped token do not matter."""
    text = re.sub(r"[\s\\]", "", text)
    if not text.startswith(VERSION):
        version = re.match(r"rg\d+\.", text)
        if version is None:
            raise NotApplicable(f"token not applicable: {text[:20]!r} is not a redgreen token")
        raise NotApplicable(
            f"token not applicable: made by another version of redgreen ({version[0]}..., this one"
            f" reads {VERSION}...)"
        )
    try:
        unpacker = zlib.decompressobj(zdict=_WORDS)
        body = unpacker.decompress(base64.b64decode(text[len(VERSION):], b"-_", validate=True))
        if not unpacker.eof or unpacker.unused_data:
            raise ValueError("incomplete")
        return _unpack(json.loads(body))
    except (ValueError, TypeError, KeyError, zlib.error, binascii.Error):
        raise NotApplicable("token not applicable: it is damaged; copy all of it") from None


def hash_seed() -> str:
    """What decides the order of sets of strings in this process."""
    fixed = os.environ.get("PYTHONHASHSEED", "random")
    return "0" if not sys.flags.hash_randomization else fixed if fixed.isdigit() else "random"


def resolve(faults: Iterable[Fault], edges: Iterable[EdgeSite]) -> frozenset[Fault]:
    """The token's faults at the edges of a recorded run: same call, at the nearest line."""
    edges = list(edges)
    return frozenset(replace(fault, edge=_resolve(fault.edge, edges)) for fault in faults)


def _resolve(wanted: EdgeSite, edges: list[EdgeSite]) -> EdgeSite:
    def key(edge: EdgeSite) -> tuple[str, ...]:
        site = edge.site
        return edge.kind, PurePath(site.file).name, site.function, site.code, site.torch_frame

    same = [edge for edge in edges if key(edge) == key(wanted)]
    if not same:
        site = wanted.site
        where = f"{PurePath(site.file).name}:{site.line} {wanted.kind}"
        raise NotApplicable(
            f"token not applicable: this program has no edge {where} in {site.function}"
            f" ({site.code.strip()[:60]})"
        )
    return min(same, key=lambda edge: abs(edge.site.line - wanted.site.line))


def _pack_edge(edge: EdgeSite) -> list[Any]:
    site = edge.site
    name = PurePath(site.file).name
    return [edge.kind, name, site.line, site.function, site.code, site.torch_frame]


def _unpack(content: Any) -> Token:
    (policy, stream, seed, orders, choices, *parts), faults, *rest = content
    torn, late, calls = (*parts, [], [], [])[:3]
    program, hash_seed, allocator, base, outcome = rest
    if policy not in ("serial", "lazy", "first", "last", "random", "late", "pct"):
        raise ValueError(policy)
    schedule = Schedule(
        policy, stream, seed, tuple(Order(first, second) for first, second in orders),
        tuple((label, bool(yes)) for label, yes in choices),
        tuple(Torn(step, _way(how)) for step, how in torn), tuple(map(int, late)),
        tuple(Order(first, second) for first, second in calls),
    )
    unpacked = frozenset(
        Fault(_action(action), EdgeSite(kind, Site(*site)), uses=tuple(map(int, *(uses or [()]))))
        for action, (kind, *site), *uses in faults
    )
    return Token(schedule, unpacked, program, hash_seed, allocator, base, outcome)


def _action(name: Any) -> Action:
    if name not in ACTIONS:
        raise ValueError(name)
    return name  # type: ignore[no-any-return]


def _way(how: Any) -> Literal["split", "stale"]:
    if how not in ("split", "stale"):
        raise ValueError(how)
    return "split" if how == "split" else "stale"
