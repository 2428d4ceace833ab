"""A captured graph as text for Graphviz."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import PurePath

from ..trace import Kind, Site
from .work import Work


def dot(nodes: Sequence[Work], agents: Sequence[str], sites: Sequence[Site]) -> str:
    """The kernels and copies with their direct dependencies; events are what carries those."""
    lines = ["digraph captured {"]
    last: dict[int, set[int]] = {}  # by stream: what its next node depends on
    published: dict[object, set[int]] = {}
    for number, node in enumerate(nodes):
        before = last.setdefault(node.agent, set())
        if node.kind is Kind.PUBLISH:
            published[node.key] = set(before)
        elif node.kind is Kind.ACQUIRE:
            before |= published.get(node.key, set())
        else:
            site = sites[node.site]
            text = f"{node.op}\n{agents[node.agent]}\n{PurePath(site.file).name}:{site.line}"
            lines.append(f"  n{number} [label={json.dumps(text)}];")
            lines += [f"  n{other} -> n{number};" for other in sorted(before)]
            last[node.agent] = {number}
    return "\n".join([*lines, "}"]) + "\n"
