"""The brute-forced programs of the public bug corpus on the toy: outcome counts, hazards, verdicts.

A table of (program, arguments, outcomes, verdict of each named edge). The programs are written in
the corpus' notation; ``at=`` names an edge.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from redgreen.proving import prove_runner
from redgreen.verdict import Edge, Proof

from .toy import Toy, ToyRunner

RED, DEAD, MASKED = "load-bearing", "redundant", "masked"
Subject = Callable[[Toy], Any]


@dataclass(frozen=True, slots=True)
class Proved:
    proof: Proof

    def edge(self, name: str) -> Edge:
        (edge,) = [e for e in self.proof.edges if e.code == name]
        return edge


def prove(subject: Subject, **options: Any) -> Proved:
    return Proved(prove_runner(
        ToyRunner(subject), subject="corpus.py:program", device="toy",
        make_token=lambda schedule, faults: f"{schedule} | {len(faults)}", **options))


def b01(fixed: bool) -> Subject:
    def program(m: Toy) -> Any:
        d, f, t = m.stream("Sd"), m.stream("F"), m.al(m.default)
        outs = [m.al(m.default) for _ in range(2)]
        m.done()
        for i, out in enumerate(outs):
            if fixed:
                m.join(d, f, at="war")
            m.fill(d, t, i + 1)
            m.join(f, d, at="raw")
            m.k(f, t, out)
        m.done()
        return outs
    return program


def b03_b04(m: Toy) -> Any:
    c, x, load, kv, out = m.stream("C"), m.stream("X"), m.stream("L"), m.al(m.default), m.pinned(0)
    new, answer = m.pinned(77), m.al(m.default)
    written, used = m.event(), m.event()
    m.done()
    m.fill(c, kv, 1)
    m.rec(written, c)
    m.k(c, kv, answer)
    m.rec(used, c)
    m.wait(x, written, at="store")
    m.cp(x, kv, out)
    m.wait(load, used, at="load")
    m.join(load, x, at="after store")
    m.cp(load, new, kv)
    m.done()
    return [answer, out, kv]


def b05(fixed: bool) -> Subject:
    def program(m: Toy) -> Any:
        s, d, p, e = m.stream(), m.al(m.default), m.pinned(0), m.event()
        m.fill(s, d, 7)
        m.cp(s, d, p)
        m.rec(e, s, at="rec")
        if fixed:
            m.hsync(e, at="hs")
        return m.rd(p)
    return program


def b06(fixed: bool) -> Subject:
    def program(m: Toy) -> Any:
        main, w, b, out, e = (m.stream("M"), m.stream("W"), m.al(m.default), m.al(m.default),
                              m.event())
        if not fixed:
            m.wait(main, e, at="wait")
        m.fill(w, b, 3)
        m.rec(e, w)
        if fixed:
            m.wait(main, e, at="wait")
        m.k(main, b, out)
        m.done()
        return out
    return program


def b07(m: Toy) -> Any:
    f, x, e = m.stream("F"), m.stream("X"), m.event()
    outs, p = [m.al(m.default), m.al(m.default)], m.pinned(0)
    for i, out in enumerate(outs):
        m.fill(f, out, i + 1)
        m.rec(e, f, at=f"rec {i}")
    m.wait(x, e, at="wait")
    m.cp(x, outs[0], p)
    m.done()
    return m.rd(p)


def ring(steps: int, depth: int, back: str = "") -> Subject:
    """B09, B10, B65: a ring of buffers filled by C and reduced by R."""
    def program(m: Toy) -> Any:
        c, r = m.stream("C"), m.stream("R")
        buffers = [m.al(m.default) for _ in range(depth)]
        outs = [m.al(m.default) for _ in range(steps)]
        done = [m.event() for _ in range(steps)]
        for i in range(steps):
            if back == "full" and i:
                m.join(c, r, at="back")
            if back == "oldest" and i >= depth:
                m.wait(c, done[i - depth], at="back")
            if back == "newest" and i >= depth:
                m.wait(c, done[i - 1], at="back")
            m.fill(c, buffers[i % depth], i + 1)
            m.join(r, c, at="forth")
            m.k(r, buffers[i % depth], outs[i])
            m.rec(done[i], r)
        m.done()
        return outs
    return program


def b13(how: str, filled_on_r: bool = False) -> Subject:
    def program(m: Toy) -> Any:
        c, r, out = m.stream("C"), m.stream("R"), m.al(m.default)
        x = m.al(r if how == "under R" else c)
        m.fill(r if filled_on_r else c, x, 5)
        m.join(r, c, at="raw")
        m.k(r, x, out)
        if how == "rs":
            m.rs(x, r, at="fix")
        if how == "wrong rs":
            m.rs(x, c, at="fix")
        m.free(x)
        if how == "wait":
            m.join(c, r, at="fix")
        m.fill(c, m.al(c), 9)
        m.join(c, r, at="late")
        m.done()
        return out
    return program


def onload(record: str = "", back: bool = False) -> Subject:
    """B15, B16: weights copied on X, used on C, dropped, block reused by X."""
    def program(m: Toy) -> Any:
        x, c, out = m.stream("X"), m.stream("C"), m.al(m.default)
        sources = [m.pinned(1), m.pinned(2)]
        w = m.al(x)
        m.cp(x, sources[0], w)
        m.join(c, x, at="post")
        m.k(c, w, out)
        if record:
            m.rs(w, {"X": x, "C": c}[record], at="rs")
        if back:
            m.join(x, c, at="back")
        m.free(w)
        m.cp(x, sources[1], m.al(x))
        m.done()
        return out
    return program


def b17(fixed: bool) -> Subject:
    def program(m: Toy) -> Any:
        x, c, p = m.stream("X"), m.stream("C"), m.pinned(4)
        w8, w16, out = m.al(m.default), m.al(m.default), m.al(m.default)
        m.cp(x, p, w8)
        m.k(x if fixed else c, w8, w16)
        m.join(c, x, at="post")
        m.k(c, w16, out)
        m.done()
        return out
    return program


def b20(kinds: str) -> Subject:
    def program(m: Toy) -> Any:
        s, d = m.stream(), m.al(m.default)
        slots, outs = [m.pinned(0), m.pinned(0)], [m.al(m.default) for _ in kinds]
        events = [m.event() for _ in kinds]
        for i, kind in enumerate(kinds):
            m.wr(slots[i % 2], i + 1)
            m.cp(s, slots[i % 2], d)
            m.k(s, d, outs[i])
            m.rec(events[i], s)
            if kind == "n" and i:
                m.hsync(events[i - 1], at="hsync")
        m.done()
        return outs
    return program


def b21(fresh: bool) -> Subject:
    def program(m: Toy) -> Any:
        s, d, p = m.stream(), m.al(m.default), m.al_pinned()
        outs = [m.al(m.default) for _ in range(2)]
        for i, out in enumerate(outs):
            if fresh and i:
                p = m.al_pinned()
            m.wr(p, i + 1)
            m.cp(s, p, d)
            m.k(s, d, out)
            if fresh:
                m.free(p)
        m.done()
        return outs
    return program


def b22(fixed: bool) -> Subject:
    def program(m: Toy) -> Any:
        a, main, b = m.stream("A"), m.stream("M"), m.al(m.default)
        w = [m.al(m.default), m.al(m.default)]
        r, c = m.event(), m.event()
        m.fill(a, b, 1)
        m.rec(r, a)
        m.wait(main, r, at="r")
        m.cp(main, b, w[0])
        if fixed:
            m.rec(c, main)
            m.wait(a, c, at="c")
        m.fill(a, b, 2)
        m.done()
        return w[0]
    return program


def b26(m: Toy) -> Any:
    f, sd, plan, t, out = (m.stream("F"), m.stream("Sd"), m.stream("Pl"), m.al(m.default),
                           m.al(m.default))
    read, verify = m.event(), m.event()
    m.fill(f, t, 1)
    m.k(f, t, out)
    m.rec(read, f, at="record r")
    m.rec(verify, f, at="record v")
    m.wait(sd, read, at="r")
    m.join(plan, sd, at="p")
    m.hsync(verify, at="v")
    m.fill(plan, t, 2)
    m.done()
    return out


def b27(twin: bool) -> Subject:
    def program(m: Toy) -> Any:
        c, other, out = m.stream("C"), m.stream("X"), m.al(m.default)
        x = m.al(other if twin else c)
        m.fill(c, x, 3)
        m.k(c, x, out)
        m.rs(x, c, at="rs")
        m.free(x)
        m.fill(other if twin else c, m.al(other if twin else c), 9)
        m.done()
        return out
    return program


def b28(fixed: bool, one_stream: bool = False) -> Subject:
    def program(m: Toy) -> Any:
        s1 = m.stream("S1")
        s2 = s1 if one_stream else m.stream("S2")
        si, so, o1, e = m.al(m.default), m.al(m.default), m.al(m.default), m.event()
        m.fill(s1, si, 1)
        m.k(s1, si, so)
        m.k(s1, so, o1)
        if fixed:
            m.rec(e, s1)
            m.wait(s2, e, at="e")
        m.fill(s2, si, 2)
        m.k(s2, si, so)
        m.done()
        return [o1, so]
    return program


def b36(moved: bool) -> Subject:
    def program(m: Toy) -> Any:
        f, load, z, kv, out, p = (m.stream("F"), m.stream("L"), m.stream("Z"), m.al(m.default),
                                  m.al(m.default), m.pinned(8))
        m.done()
        m.k(f, kv, out)
        m.join(load, f, at="LF")
        m.cp(load if moved else z, p, kv)
        m.done()
        return out
    return program


def b43(fixed: bool) -> Subject:
    def program(m: Toy) -> Any:
        c, x, p = m.stream("C"), m.stream("X"), m.pinned(0)
        t = m.al(c)
        m.fill(c, t, 1)
        m.join(x, c, at="xc")
        m.cp(x, t, p)
        if fixed:
            m.rs(t, x, at="rs")
        m.free(t)
        m.fill(c, m.al(c), 9)
        m.done()
        return m.rd(p)
    return program


def b43_three(m: Toy) -> Any:
    c, p, d, a, out = (m.stream("C"), m.stream("P"), m.stream("D"), m.al(m.default),
                       m.al(m.default))
    t = m.al(c)
    m.fill(c, t, 1)
    m.join(p, c, at="pc")
    m.k(p, t, a)
    m.join(d, p, at="dp")
    m.k(d, [t, a], out)
    m.rs(t, p, at="rsP")
    m.rs(t, d, at="rsD")
    m.free(t)
    m.fill(c, m.al(c), 9)
    m.done()
    return out


def b44(fixed: bool) -> Subject:
    def program(m: Toy) -> Any:
        a, b, out, e = m.stream("A"), m.stream("B"), m.al(m.default), m.event()
        t = m.al(a)
        m.fill(a, t, 1)
        m.rec(e, a)
        m.wait(b, e, at="ev")
        m.k(b, t, out)
        if fixed:
            m.rs(t, b, at="rs")
        m.free(t)
        m.fill(a, m.al(a), 9)
        m.done()
        return out
    return program


def b47(pre: bool = False, post: bool = True, rs: bool = False, rounds: int = 2) -> Subject:
    def program(m: Toy) -> Any:
        x, c = m.stream("X"), m.stream("C")
        sources = [m.pinned(i + 1) for i in range(rounds)]
        outs = [m.al(m.default) for _ in range(rounds)]
        for source, out in zip(sources, outs, strict=True):
            if pre:
                m.join(x, c, at="pre")
            w = m.al(x)
            m.cp(x, source, w)
            if post:
                m.join(c, x, at="post")
            m.k(c, w, out)
            if rs:
                m.rs(w, c, at="rs")
            m.free(w)
        m.done()
        return outs
    return program


def b49(fresh: str) -> Subject:
    """``fresh``: where something is allocated, "early" or "late" (behind the join)."""
    def program(m: Toy) -> Any:
        c, x, h, a, out = (m.stream("C"), m.stream("X"), m.al(m.default), m.al(m.default),
                           m.al(m.default))
        m.fill(c, h, 1)
        h2 = m.al(c)
        m.cp(c, h, h2)
        m.join(x, c, at="fork")
        m.k(x, h2, a)
        m.rs(h2, x, at="rs")
        m.free(h2)
        if fresh == "early":
            m.fill(c, m.al(c), 9)
        m.k(c, h, h, 5)
        m.join(c, x, at="join")
        m.k(c, [a, h], out)
        if fresh == "late":
            m.fill(c, m.al(c), 9)
        m.done()
        return out
    return program


def b49_bare(m: Toy) -> Any:
    c, x, h, a, out = (m.stream("C"), m.stream("X"), m.al(m.default), m.al(m.default),
                       m.al(m.default))
    m.fill(c, h, 1)
    m.join(x, c)
    m.k(x, h, a)
    m.k(c, h, h, 5)
    m.join(c, x)
    m.k(c, [a, h], out)
    m.done()
    return out


def b61(fixed: bool) -> Subject:
    def program(m: Toy) -> Any:
        a, b, c = m.stream("A"), m.stream("B"), m.stream("C")
        xa, xb, out = m.al(m.default), m.al(m.default), m.al(m.default)
        events = [m.event(), m.event()] if fixed else [m.event()] * 2
        m.fill(a, xa, 1)
        m.rec(events[0], a)
        m.fill(b, xb, 2)
        m.rec(events[1], b)
        m.wait(c, events[0], at="first")
        m.wait(c, events[1], at="second")
        m.k(c, [xa, xb], out)
        m.done()
        return out
    return program


def b66(fixed: bool) -> Subject:
    def program(m: Toy) -> Any:
        ranks = [m.stream(f"rank {i}") for i in range(3)]
        shards = [m.al(m.default) for _ in ranks]
        gathered, outs = m.al(m.default), [m.al(m.default) for _ in ranks]
        events = [m.event() for _ in ranks]
        m.done()
        for i in (0, 1, 2):
            m.fill(ranks[i], shards[i], i + 1)
            m.rec(events[i], ranks[i])
        if fixed:
            m.wait(ranks[0], events[1], at="in 1")
            m.wait(ranks[0], events[2], at="in 2")
        m.k(ranks[0], shards, gathered)
        moved = m.event()
        m.rec(moved, ranks[0])
        if fixed:
            m.wait(ranks[1], moved, at="out 1")
            m.wait(ranks[2], moved, at="out 2")
        for i in (0, 1, 2):
            m.k(ranks[i], gathered, outs[i])
        m.done()
        return outs
    return program


def b72(fix: str) -> Subject:
    def program(m: Toy) -> Any:
        s, dk, dv = m.stream(), m.al(m.default), m.al(m.default)
        p, q = m.pinned(0), m.pinned(0)
        m.wr(p, 1)
        m.cp(s, p, dk)
        if fix == "hsync":
            m.hsync(s, at="fix")
        second = q if fix == "two" else p
        m.wr(second, 2)
        m.cp(s, second, dv)
        m.done()
        return [dk, dv]
    return program


def b74(fixed: bool) -> Subject:
    def program(m: Toy) -> Any:
        w, readers, b = m.stream("W"), [m.stream("R1"), m.stream("R2")], m.al(m.default)
        outs = [m.al(m.default) for _ in readers]
        acks = [m.event() for _ in readers]
        m.fill(w, b, 1)
        for reader, out, ack in zip(readers, outs, acks, strict=True):
            m.join(reader, w)
            m.k(reader, b, out)
            m.rec(ack, reader)
        m.wait(w, acks[0], at="ack 1")
        if fixed:
            m.wait(w, acks[1], at="ack 2")
        m.fill(w, b, 2)
        m.done()
        return outs
    return program


NONDET = [
    ("B01", b01(False), 2, "WAR"),
    ("B05", b05(False), 2, "HOST-RAW"),
    ("B06", b06(False), 2, "RAW"),
    ("B09 parity", ring(3, 1), 5, "WAR"),
    ("B09 ping-pong, 3 steps", ring(3, 2), 2, "WAR"),
    ("B10", ring(2, 1), 2, "WAR"),
    ("B13", b13(""), 2, "UAF"),
    ("B13 wrong rs", b13("wrong rs"), 2, "UAF"),
    ("B15", onload("X"), 2, "UAF"),
    ("B16", onload(), 2, "UAF"),
    ("B17", b17(False), 2, "RAW"),
    ("B20 nbn", b20("nbn"), 2, "HOST-WAR"),
    ("B20 nbb", b20("nbb"), 2, "HOST-WAR"),
    ("B20 bbb", b20("bbb"), 2, "HOST-WAR"),
    ("B20 nbnn", b20("nbnn"), 2, "HOST-WAR"),
    ("B20 nbbn", b20("nbbn"), 4, "HOST-WAR"),
    ("B21", b21(False), 2, "HOST-WAR"),
    ("B22", b22(False), 2, "WAR"),
    ("B28", b28(False), 3, "WAR"),
    ("B36", b36(False), 2, "WAR"),
    ("B43", b43(False), 2, "UAF"),
    ("B44", b44(False), 2, "UAF"),
    ("B47", b47(post=False, rounds=1), 2, "RAW"),
    ("B49", b49_bare, 2, "WAR"),
    ("B61", b61(False), 2, "RAW"),
    ("B65 depth 1", ring(4, 1), 14, "WAR"),
    ("B65 depth 2", ring(4, 2), 4, "WAR"),
    ("B65 depth 3", ring(4, 3), 2, "WAR"),
    ("B66", b66(False), 9, "RAW"),
    ("B72", b72(""), 2, "HOST-WAR"),
    ("B74", b74(False), 2, "WAR"),
]

GREEN: list[tuple[str, Subject, dict[str, str]]] = [
    ("B01", b01(True), {"war": RED, "raw": RED}),
    ("B03 and B04", b03_b04, {"store": RED, "load": RED, "after store": RED}),
    ("B05", b05(True), {"rec": RED, "hs": RED}),
    ("B06", b06(True), {"wait": RED}),
    ("B07", b07, {"wait": RED, "rec 0": MASKED, "rec 1": MASKED}),
    ("B09 ping-pong, 2 steps", ring(2, 2), {"forth": RED}),
    ("B09 full wait", ring(3, 2, "full"), {"forth": RED, "back": RED}),
    ("B09 per buffer", ring(3, 2, "oldest"), {"forth": RED, "back": RED}),
    ("B10", ring(2, 1, "full"), {"forth": RED, "back": RED}),
    ("B13 rs", b13("rs"), {"fix": RED, "raw": RED, "late": DEAD}),
    ("B13 wait", b13("wait"), {"fix": RED, "raw": RED}),
    ("B13 under R", b13("under R"), {"raw": RED}),
    ("B13 filled on R", b13("rs", filled_on_r=True), {"fix": RED, "raw": DEAD}),
    ("B15", onload("C"), {"rs": RED, "post": RED}),
    ("B16", onload(back=True), {"back": RED, "post": RED}),
    ("B17", b17(True), {"post": RED}),
    ("B20 nnn", b20("nnn"), {"hsync": RED}),
    ("B20 nnb", b20("nnb"), {"hsync": RED}),
    ("B20 nnnn", b20("nnnn"), {"hsync": RED}),
    ("B21 fresh", b21(True), {}),
    ("B22", b22(True), {"c": RED, "r": RED}),
    ("B26", b26, dict.fromkeys(("r", "p", "v", "record r", "record v"), MASKED)),
    ("B27", b27(False), {"rs": DEAD}),
    ("B27 twin", b27(True), {"rs": RED}),
    ("B28", b28(True), {"e": RED}),
    ("B28 one stream", b28(True, one_stream=True), {"e": DEAD}),
    ("B36", b36(True), {"LF": RED}),
    ("B43", b43(True), {"rs": RED, "xc": RED}),
    ("B43 three", b43_three, {"rsP": DEAD, "rsD": RED, "pc": RED, "dp": RED}),
    ("B44", b44(True), {"rs": RED, "ev": RED}),
    ("B47 all", b47(True, True, True), {"pre": MASKED, "post": RED, "rs": MASKED}),
    ("B47 no rs", b47(True, True, False), {"pre": RED, "post": RED}),
    ("B47 no pre", b47(False, True, True), {"rs": RED, "post": RED}),
    ("B49 early", b49("early"), {"rs": RED, "fork": RED, "join": RED}),
    ("B49 late", b49("late"), {"rs": DEAD, "fork": RED, "join": RED}),
    ("B61", b61(True), {"first": RED, "second": RED}),
    *((f"B65 oldest {d}", ring(4, d, "oldest"), {"back": RED}) for d in (1, 2, 3)),
    *((f"B65 newest {d}", ring(4, d, "newest"), {"back": RED}) for d in (1, 2, 3)),
    ("B66", b66(True), {"in 1": RED, "in 2": RED, "out 1": RED, "out 2": RED}),
    ("B72 hsync", b72("hsync"), {"fix": RED}),
    ("B72 two buffers", b72("two"), {}),
    ("B74", b74(True), {"ack 1": RED, "ack 2": RED}),
]


@pytest.mark.parametrize(("name", "program", "outcomes", "hazard"), NONDET,
                         ids=[row[0] for row in NONDET])
def test_without_the_edge_is_refuted(
    name: str, program: Subject, outcomes: int, hazard: str
) -> None:
    green = prove(program).proof.green
    assert green.verdict == "refuted"
    assert green.outcomes == outcomes
    changing = [race for race in green.races if race.changes_output]
    assert hazard in {race.hazard for race in changing}
    assert all(race.witness for race in changing)


@pytest.mark.parametrize(("name", "program", "edges"), GREEN, ids=[row[0] for row in GREEN])
def test_with_the_edge_is_proved(name: str, program: Subject, edges: dict[str, str]) -> None:
    proved = prove(program)
    green = proved.proof.green
    assert (green.verdict, green.outcomes, green.races) == ("proved", 1, ())
    assert {code: proved.edge(code).verdict for code in edges} == edges
    for code, verdict in edges.items():
        assert bool(proved.edge(code).witness) == (verdict != DEAD)


def test_b06_a_wait_on_nothing_is_dead_and_reported() -> None:
    proved = prove(b06(False))
    assert proved.edge("wait").verdict == DEAD
    assert "wait-on-unrecorded-event" in {d.kind for d in proved.proof.diagnostics}


def test_b36_a_wait_on_an_unused_stream_is_dead_in_a_racy_program() -> None:
    assert prove(b36(False)).edge("LF").verdict == DEAD


def test_b15_record_stream_on_the_allocating_stream_is_reported() -> None:
    kinds = {d.kind for d in prove(onload("X")).proof.diagnostics}
    assert {"record-stream-on-allocating-stream", "latent-use-after-free"} <= kinds


def test_b26_names_the_sets() -> None:
    proved = prove(b26)
    names = {proved.edge(code).id: code for code in ("r", "p", "v", "record r", "record v")}
    sets = {frozenset({edge.code, *(names[other] for other in mask)})
            for edge in proved.proof.edges if edge.code for mask in edge.masked_with}
    assert sets == {frozenset({a, b}) for a in ("r", "p", "record r") for b in ("v", "record v")}


def test_b47_names_the_pair() -> None:
    proved = prove(b47(True, True, True))
    assert proved.edge("pre").masked_with == ((proved.edge("rs").id,),)
    assert proved.edge("rs").masked_with == ((proved.edge("pre").id,),)
