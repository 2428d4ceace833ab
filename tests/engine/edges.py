"""The edge table: every ordering that the engine relies on, what breaks it, what comes out then.

    python -m tests.engine.edges [--out FILE] [--only E08 ...]

proves each row and writes the table as Markdown. A row is judged by what fits its class: a sync
call is taken out by redgreen itself, in the default configuration of Option A (`option_a`) and,
where it is redundant there, in one in which it is not; other orders by a mutation; keys and
accounting by a pair of ordinary tests.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import redgreen
from tests.engine import mutations, subjects

LIVE, REDUNDANT, ABSENT = "load-bearing", "redundant", "unexercised"
REFUTED, HARMLESS, WRONG = "output depends on the schedule", "output unchanged", "output wrong"
BUDGET = 12  # runs for each question about a mutated program


@dataclass(frozen=True)
class Sync:
    """A sync call: the comment at its line has the row's id, its kind begins with ``kind``."""

    kind: str
    verdicts: dict[str, str]  # subject -> verdict; option_a first


@dataclass(frozen=True)
class Mutant:
    """A mutation and what comes of it."""

    name: str
    result: str


@dataclass(frozen=True)
class Pair:
    """Tests of the mechanism in place and broken."""

    tests: str


@dataclass(frozen=True)
class Row:
    id: str
    edge: str  # producer -> consumer
    hazard: str
    evidence: tuple[Sync | Mutant | Pair, ...]
    why: str = ""  # of what surprises


TESTS = "test_regressions.py::"
ROWS = (
    Row("E01", "scatter -> combine of the next step", "RAW", (
        Mutant("combine elsewhere", REFUTED), Mutant("scatter elsewhere", REFUTED))),
    Row("E03", "row moves -> combine, after the scatter", "RAW, WAW", (
        Mutant("row moves elsewhere", REFUTED), Mutant("row moves skipped", WRONG))),
    Row("E05", "MAIN -> host reads copied ids (host mirror)", "HOST-RAW", (
        Sync("stream.synchronize", {"option_a": ABSENT, "host_mirror": LIVE}),)),
    Row("E06", "MAIN -> host refills step inputs", "HOST-WAR", (
        Sync("stream.synchronize", {"option_a": REDUNDANT, "default": LIVE, "mixed_steps": LIVE}),),
        "With Option A it matters between eager steps; without, before every refill."),
    Row("E07", "the drain is skipped only after a staged graph step", "HOST-WAR", (
        Mutant("drain always skipped", REFUTED),)),
    Row("E08", "staged copies -> host refills the same staging", "HOST-WAR", (
        Sync("event.synchronize", {"option_a": REDUNDANT, "one_slot": LIVE, "depth_3": LIVE}),
        Sync("record", {"option_a": REDUNDANT, "one_slot": LIVE, "depth_3": LIVE}),
        Mutant("poison", REFUTED)),
        "Ring 2 at depth 2: the output of step i-2 has been waited for before step i refills. The"
        " poison shows that the source is live after the call, not that this wait is needed."),
    Row("E13", "two slots in turn", "HOST-WAR", (Mutant("ring collapsed", HARMLESS),),
        "E08 guards a single slot as well, and the logits are ordered by MAIN (E41)."),
    Row("E14", "host writes the staging -> copies are enqueued", "HOST-RAW", (
        Mutant("copies before the host writes", REFUTED),)),
    Row("E15", "staged copies -> replay", "RAW", (Mutant("staging elsewhere", REFUTED),)),
    Row("E16", "replay -> next copies into the same inputs", "WAR", (
        Mutant("staging without back edge", HARMLESS),
        Mutant("staging without back edge, one slot", REFUTED)),
        "Ring 2 at depth 2: that replay's output has been waited for."),
    Row("E17", "embedding -> replay -> next embedding, on the slot's hidden", "RAW, WAR", (
        Mutant("embedding elsewhere", REFUTED),)),
    Row("E18", "combine -> embedding", "RAW", (Mutant("embedding elsewhere", REFUTED),)),
    Row("E19", "decode rows take the device's ids", "HOST-RAW", (
        Mutant("placeholders decoded", WRONG),)),
    Row("E20", "the synchronous loop feeds the mirror", "RAW", (Mutant("mirror not fed", WRONG),)),
    Row("E21", "pageable sources are read before the call returns", "HOST-WAR", (
        Mutant("one pinned source for ids", REFUTED),)),
    Row("E24", "capture begins on an idle stream", "capture", (
        Sync("stream.synchronize", {"option_a": REDUNDANT}),),
        "No earlier step can be captured with it: capture takes what is enqueued, not what runs."),
    Row("E25", "cold pass leaves the capture's blocks in its pool", "driver allocation", (
        Pair("test_on_cuda.py::test_captures_take_nothing_from_the_driver"),)),
    Row("E26", "persistent inputs have a pool of their own", "driver allocation", (
        Pair("test_on_cuda.py::test_persistent_inputs_from_the_graphs_pool_starve_the_capture"),)),
    Row("E27", "nobody else gets a block that a graph has baked in", "UAF", (
        Pair(TESTS + "test_r11_nobody_else_gets_what_a_graph_uses"),)),
    Row("E30", "a graph's logits live as long as the graph", "UAF", (
        Pair(TESTS + "test_r11_nobody_else_gets_what_a_graph_uses"),)),
    Row("E31", "graphs of one pool replay one after another", "WAW", (
        Mutant("replay elsewhere", REFUTED),)),
    Row("E32", "a table that outgrows a graph -> graph dropped", "UAF", (
        Sync("stream.synchronize", {"option_a": ABSENT, "growing_table": REDUNDANT}),),
        "Blocks of the dropped slot go back to pools of the same stream."),
    Row("E34", "slots are keyed by rows and query length", "wrong graph", (
        Pair(TESTS + "test_r15_rows_and_query_length_are_both_in_the_key"),)),
    Row("E35", "padding rows are inert", "WAW", (Mutant("live padding", WRONG),)),
    Row("E37", "block input -> AUX -> sum of routed and shared", "RAW", (
        Sync("wait_stream", {"option_a": ABSENT, "experts": LIVE}),)),
    Row("E39", "a captured fork is joined before the capture ends", "capture", (
        Pair(TESTS + "test_e39_a_fork_that_is_not_joined_cannot_be_captured"),)),
    Row("E40", "a failed capture is no empty capture", "wrong graph", (
        Pair(TESTS + "test_r19_a_failed_capture_is_an_error_and_not_an_empty_graph"),)),
    Row("E41", "replay -> sampler -> next replay, on the logits", "RAW, WAR", (
        Mutant("sampler elsewhere", REFUTED),)),
    Row("E42", "sampler -> output copy", "RAW", (Sync("wait_stream", {"option_a": LIVE}),)),
    Row("E43", "output copy -> host reads the ids", "HOST-RAW", (
        Sync("event.synchronize", {"option_a": LIVE}), Sync("record", {"option_a": LIVE}))),
    Row("E44", "a slot is written again only after its ids were read", "WAR", (
        Mutant("one output slot", WRONG),)),
    Row("E45", "output given up -> its slot is written again", "WAR", (
        Sync("wait_event", {"option_a": ABSENT, "unread_steps": REDUNDANT}),),
        "The order is lost, but what is copied too late is what nobody reads, and the next copy to"
        " the same pinned ids follows on the same stream."),
    Row("E46", "an output has its own list of requests", "torn read", (
        Pair(TESTS + "test_e57_a_zombie_step_gives_nothing"),)),
    Row("E47", "output copy -> penalties read the last ids", "HOST-RAW", (
        Sync("event.synchronize", {"option_a": ABSENT, "penalties": LIVE}),)),
    Row("E53", "old owner's last write -> reset for the new owner", "WAW", (
        Mutant("state reset elsewhere", REFUTED),)),
    Row("E56", "reset -> first read by the new owner", "RAW", (
        Mutant("state reset elsewhere", REFUTED),)),
    Row("E57", "a step in flight for a finished request gives nothing", "spurious tokens", (
        Pair(TESTS + "test_e57_a_zombie_step_gives_nothing"),)),
    Row("E58", "what a prompt's chunk samples is dropped", "extra tokens", (
        Pair(TESTS + "test_r24_what_a_chunk_samples_is_not_output"),)),
    Row("E59", "samples in flight are counted, also across preemption", "lost tokens", (
        Pair(TESTS + "test_e59_preemption_with_samples_in_flight"),)),
    Row("E60", "a state slot belongs to one request, which starts from zero", "WAW", (
        Mutant("state kept", WRONG),)),
    Row("E62", "device -> graphs and caches are dropped", "UAF", (
        Sync("torch.cuda.synchronize", {"option_a": REDUNDANT}),),
        "Every output has been read by then, and the pools order what remains."),
)  # fmt: skip


@dataclass(frozen=True)
class Finding:
    """One piece of evidence, as it came out."""

    what: str
    found: str
    expected: str
    detail: str

    @property
    def good(self) -> bool:
        return self.found == self.expected


@cache
def proof(name: str) -> dict[str, Any]:
    """Of one of the subjects, the engine's edges alone."""
    document: dict[str, Any] = redgreen.prove(getattr(subjects, name), edges="*engine/*").to_dict()
    return document


@cache
def mutant(name: str) -> dict[str, Any]:
    """Of one of the mutations, compared with the whole program."""
    document: dict[str, Any] = redgreen.prove(
        mutations.mutated, name, reference=mutations.whole, edges="nowhere", budget=BUDGET
    ).to_dict()
    return document


def check(row: Row) -> list[Finding]:
    """What redgreen says about a row; pairs are for pytest."""
    found: list[Finding] = []
    for evidence in row.evidence:
        if isinstance(evidence, Sync):
            for subject, expected in evidence.verdicts.items():
                found.append(_sync(row.id, evidence.kind, subject, expected))
        elif isinstance(evidence, Mutant):
            found.append(_mutant(evidence))
    return found


def _sync(row: str, kind: str, subject: str, expected: str) -> Finding:
    sites = [
        edge for edge in proof(subject)["edges"] if row in edge["code"] and edge["kind"] == kind
    ]
    verdicts = sorted({edge["verdict"] for edge in sites}) or [ABSENT]
    details = [_detail(edge) for edge in sites]
    what = f"{', '.join(edge['id'] for edge in sites) or kind} in {subject}"
    return Finding(what, " and ".join(verdicts), expected, "; ".join(details))


def _detail(edge: dict[str, Any]) -> str:
    if edge["witness"]:
        return f"witness {edge['witness'][:16]}..."
    covered: str = ", ".join(edge["covered_by"][:2])
    return f"covered by {covered}" if covered else str(edge["reason"])


def _mutant(evidence: Mutant) -> Finding:
    green = mutant(evidence.name)["green"]
    found = HARMLESS
    if green["reference"] == "different":
        found = WRONG
    if green["verdict"] == "refuted":
        found = REFUTED
    race = next((race for race in green["races"] if race["changes_output"]), None)
    detail = ""
    if race is not None:
        first, second = (f"{Path(race[end]['file']).name}:{race[end]['line']}"
                         for end in ("first", "second"))  # fmt: skip
        detail = f"{race['hazard']} {first} -> {second}"
    return Finding(evidence.name, found, evidence.result, detail)


def markdown(say: Callable[[str], None], only: list[str]) -> tuple[str, bool]:
    """The table, and whether everything came out as expected."""
    lines = ["| edge | what | hazard | evidence | |", "|---|---|---|---|---|"]
    good = True
    for row in ROWS:
        if only and row.id not in only:
            continue
        say(row.id)
        findings = check(row)
        good = good and all(finding.good for finding in findings)
        cells = [f"{f.what}: **{f.found}**" + (f" ({f.detail})" if f.detail else "")
                 + ("" if f.good else f", expected {f.expected}") for f in findings]  # fmt: skip
        cells += [f"pair: `{e.tests}`" for e in row.evidence if isinstance(e, Pair)]
        evidence = "<br>".join(cells).replace("|", "\\|")
        lines.append(f"| {row.id} | {row.edge} | {row.hazard} | {evidence} | {row.why} |")
    return "\n".join(lines) + "\n", good


def main() -> int:
    """0 if every row came out as expected, else 1."""
    parser = argparse.ArgumentParser("tests.engine.edges", description=__doc__)
    parser.add_argument("--out", type=Path, help="instead of standard output")
    parser.add_argument("--only", nargs="*", default=[], metavar="ROW")
    options = parser.parse_args()
    table, good = markdown(lambda text: print(text, file=sys.stderr, flush=True), options.only)
    if options.out is None:
        print(table, end="")
    else:
        options.out.write_text(table)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
