"""Each rule of a proof with its opposite."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from redgreen.faults import Fault
from redgreen.proving import InternalError, SubjectRaised, prove_runner
from redgreen.run import Leaf, Outcome, Run
from redgreen.schedule import SERIAL, Schedule
from redgreen.verdict import Proof

from .test_corpus import DEAD, MASKED, RED, b05, b26, b47, prove, ring
from .toy import Toy, ToyRunner

OK = b05(True)


def proof_of(runner: Any, **options: Any) -> Proof:
    return prove_runner(runner, subject="toy.py:program", device="toy",
                        make_token=lambda schedule, faults: str(schedule), **options)


def kinds(proof: Proof) -> set[str]:
    return {d.kind for d in proof.diagnostics}


class Changed(ToyRunner):
    """A runner whose runs are tampered with, by number."""

    def __init__(self, subject: Callable[[Toy], Any], change: Callable[[int, Run], None]) -> None:
        super().__init__(subject)
        self._change = change

    def run(self, schedule: Schedule, faults: frozenset[Fault] = frozenset(),
            step_limit: int | None = None) -> Run:
        run = super().run(schedule, faults, step_limit)
        self._change(self.runs, run)
        return run


def test_the_document_is_the_contract() -> None:
    document = proof_of(ToyRunner(OK)).to_dict()
    assert list(document) == ["schema", "subject", "device", "green", "edges", "diagnostics"]
    assert list(document["green"]) == ["verdict", "scope", "outcomes", "schedules", "conflicts",
                                       "reference", "races"]
    assert list(document["edges"][0]) == [
        "id", "kind", "file", "line", "function", "code", "instances", "verdict", "reason",
        "explored", "guards", "covered_by", "masked_with", "witness"]
    race = proof_of(ToyRunner(b05(False))).to_dict()["green"]["races"][0]
    assert list(race) == ["hazard", "memory", "changes_output", "witness", "first", "second"]
    assert list(race["first"]) == ["file", "line", "op", "stream"]


def test_ids_are_unique() -> None:
    def program(m: Toy) -> Any:
        s, t, d = m.stream(), m.stream(), m.al(m.default)
        m.fill(s, d, 1)
        m.join(t, s, at="a"), m.join(t, s, at="b")
        m.k(t, d, d)
        m.done()
        return d
    ids = [edge.id for edge in proof_of(ToyRunner(program)).edges]
    assert len(set(ids)) == 2 and ids[1] == f"{ids[0]} (2)"


# -- the recording


def test_a_clock_that_decides_is_inconclusive() -> None:
    calls = iter(range(100))

    def program(m: Toy) -> Any:
        s, d = m.stream(), m.al(m.default)
        for _ in range(next(calls)):
            m.fill(s, d, 1)
        m.done()
        return d
    proof = proof_of(ToyRunner(program))
    assert proof.green.verdict == "inconclusive"
    assert "two serial runs differ first at test_prove.py" in proof.diagnostics[0].message


def test_unseeded_values_are_inconclusive() -> None:
    calls = iter(range(100))

    def program(m: Toy) -> Any:
        s, d = m.stream(), m.al(m.default)
        m.fill(s, d, next(calls))
        m.done()
        return d
    proof = proof_of(ToyRunner(program))
    assert proof.green.verdict == "inconclusive"
    assert "different outputs: output byte 0" in proof.diagnostics[0].message


def test_a_refusal_is_inconclusive() -> None:
    def program(m: Toy) -> Any:
        m.refuse("cudaMemAdvise")
        return OK(m)
    proof = proof_of(ToyRunner(program))
    assert proof.green.verdict == "inconclusive"
    assert "cudaMemAdvise" in proof.diagnostics[0].message
    assert {edge.verdict for edge in proof.edges} == {"inconclusive"}


def test_a_subject_that_raises_is_no_proof() -> None:
    def program(m: Toy) -> Any:
        raise ValueError("bad")
    with pytest.raises(SubjectRaised):
        proof_of(ToyRunner(program))


def test_a_timeout_is_inconclusive() -> None:
    def stop(number: int, run: Run) -> None:
        if run.schedule.policy == "lazy":
            run.outcome = Outcome("timeout", detail="stack of the host thread")
    proof = proof_of(Changed(OK, stop))
    assert proof.green.verdict == "inconclusive"
    assert "stack of the host thread" in proof.diagnostics[0].message


# -- evidence


def test_no_device_work_is_no_pass() -> None:
    def program(m: Toy) -> Any:
        return m.rd(m.pinned(1))
    proof = proof_of(ToyRunner(program))
    assert proof.green.verdict == "inconclusive"
    assert "vacuous" in kinds(proof)


def test_no_output_is_no_pass() -> None:
    def program(m: Toy) -> Any:
        OK(m)
        return []
    assert proof_of(ToyRunner(program)).green.verdict == "inconclusive"


def test_a_difference_without_a_race_is_an_internal_error() -> None:
    def change(number: int, run: Run) -> None:
        if run.schedule.policy == "lazy":
            run.outcome = Outcome("returned", (Leaf("", "int", b"other"),))
    with pytest.raises(InternalError):
        proof_of(Changed(OK, change))


def test_a_difference_with_an_escaped_block_is_refuted() -> None:
    def change(number: int, run: Run) -> None:
        run.trace.escapes.append("pinned 8 B")
        if run.schedule.policy == "lazy":
            run.outcome = Outcome("returned", (Leaf("", "int", b"other"),))
    proof = proof_of(Changed(OK, change))
    assert proof.green.verdict == "refuted"
    assert {"escaped", "untracked-host-access"} <= kinds(proof)


def test_a_difference_with_a_suspected_block_is_refuted() -> None:
    def change(number: int, run: Run) -> None:
        run.trace.suspects.append("pinned 8 B by its array")
        if run.schedule.policy == "lazy":
            run.outcome = Outcome("returned", (Leaf("", "int", b"other"),))
    proof = proof_of(Changed(OK, change))
    assert proof.green.verdict == "refuted"
    assert "untracked-host-access" in kinds(proof)
    assert "escaped" not in kinds(proof)


def test_an_escaped_block_without_a_difference_is_an_assumption() -> None:
    proof = proof_of(Changed(OK, lambda _, run: run.trace.escapes.append("pinned 8 B")))
    assert proof.green.verdict == "proved"
    assert "escaped" in kinds(proof)


def test_a_fault_that_is_never_hit_is_unexercised() -> None:
    def change(number: int, run: Run) -> None:
        run.hits = dict.fromkeys(run.hits, 0)
    assert {e.verdict for e in proof_of(Changed(OK, change)).edges} == {"unexercised"}


def test_a_declared_id_that_did_not_run_is_unexercised() -> None:
    known = proof_of(ToyRunner(OK)).edges[0].id
    edges = proof_of(ToyRunner(OK), declared=[known, "other.py:1 record"]).edges
    assert [(e.id, e.verdict) for e in edges[2:]] == [("other.py:1 record", "unexercised")]


# -- reference


@pytest.mark.parametrize(("value", "said"), [(None, "identical"), (b"?", "different")])
def test_reference(value: bytes | None, said: str) -> None:
    outcome = ToyRunner(OK).run(SERIAL).outcome
    if value is not None:
        outcome = replace(outcome, leaves=(replace(outcome.leaves[0], data=value),))
    assert proof_of(ToyRunner(OK), reference=outcome).green.reference == said


# -- choices


def polled(guarded: bool) -> Callable[[Toy], Any]:
    def program(m: Toy) -> Any:
        s, d, p, e = m.stream(), m.al(m.default), m.pinned(0), m.event()
        m.fill(s, d, 7)
        m.cp(s, d, p)
        m.rec(e, s)
        if guarded:
            while not m.query(e):
                pass
        else:
            m.query(e)
            m.query(e)
        return m.rd(p)
    return program


def test_polling_until_done_is_proved() -> None:
    proof = proof_of(ToyRunner(polled(True)))
    assert (proof.green.verdict, proof.green.outcomes) == ("proved", 1)


def test_polling_and_going_on_is_refuted() -> None:
    proof = proof_of(ToyRunner(polled(False)))
    assert (proof.green.verdict, proof.green.outcomes) == ("refuted", 2)


def test_an_answer_that_is_returned_is_refuted_without_a_race() -> None:
    def program(m: Toy) -> Any:
        s, d, e = m.stream(), m.al(m.default), m.event()
        m.fill(s, d, 7)
        m.rec(e, s)
        answer = m.query(e)
        m.done()
        return [answer, d]
    proof = proof_of(ToyRunner(program))
    assert proof.green.verdict == "refuted"
    assert "choice-changes-output" in kinds(proof)


# -- outcomes


def test_an_error_on_a_wrong_schedule_is_an_outcome() -> None:
    def program(m: Toy) -> Any:
        if OK(m) != 7:
            raise ValueError("index out of range")
        return 7
    assert {e.verdict for e in proof_of(ToyRunner(program)).edges} == {RED}


def test_divergence_on_a_wrong_schedule_is_an_outcome() -> None:
    def program(m: Toy) -> Any:
        value, s, d = OK(m), m.stream(), m.al(m.default)
        while value != 7:
            m.fill(s, d, 0)
        return value
    assert {e.verdict for e in proof_of(ToyRunner(program)).edges} == {RED}


def test_lost_order_without_a_difference_is_explored_and_redundant() -> None:
    def program(m: Toy) -> Any:
        s, t, d = m.stream(), m.stream(), m.al(m.default)
        m.fill(s, d, 1)
        m.join(t, s, at="edge")
        m.fill(t, d, 1)
        m.done()
        return d
    (edge,) = proof_of(ToyRunner(program)).edges
    assert edge.verdict == DEAD and edge.guards and edge.explored > 1
    assert "every schedule gives the same bytes" in edge.reason


def test_a_benign_race_is_proved_and_listed() -> None:
    def program(m: Toy) -> Any:
        s, t, d = m.stream(), m.stream(), m.al(m.default)
        m.fill(s, d, 1)
        m.fill(t, d, 1)
        m.done()
        return d
    green = proof_of(ToyRunner(program)).green
    assert green.verdict == "proved"
    assert [(r.hazard, r.changes_output) for r in green.races] == [("WAW", False)]


def test_a_bound_is_inconclusive() -> None:
    proof = proof_of(ToyRunner(ring(4, 1, "")), budget=14)
    assert proof.green.verdict == "refuted"  # two outcomes are enough for that
    edge = next(e for e in proof.edges if e.kind == "wait_stream")
    assert edge.verdict == "inconclusive" and "14 runs" in edge.reason


# -- edges


def test_covered_by_names_the_other_edges() -> None:
    proved = prove(b26)
    ids = {code: proved.edge(code).id for code in ("r", "p", "v")}
    assert ids["v"] in proved.edge("r").covered_by
    assert {ids["r"], ids["p"]} <= set(proved.edge("v").covered_by)


def test_covered_by_names_an_implicit_sync() -> None:
    def program(m: Toy) -> Any:
        s, d, p = m.stream(), m.al(m.default), m.pinned(0)
        m.fill(s, d, 7)
        m.cp(s, d, p)
        m.hsync(s, at="edge")
        m.item(s, d)
        return m.rd(p)
    proof = proof_of(ToyRunner(program))
    (edge,) = proof.edges
    assert edge.verdict == DEAD
    assert any(name.endswith("item (implicit)") for name in edge.covered_by)
    assert "incidental-order" not in kinds(proof)


def test_an_incidental_order_is_reported() -> None:
    def program(m: Toy) -> Any:
        s, d, p = m.stream(), m.al(m.default), m.pinned(0)
        m.fill(s, d, 7)
        m.cp(s, d, p)
        m.item(s, d)
        return m.rd(p)
    proof = proof_of(ToyRunner(program))
    assert proof.green.verdict == "proved"
    assert "incidental-order" in kinds(proof)


def test_three_edges_that_cover_each_other_are_masked() -> None:
    def program(m: Toy) -> Any:
        s, t, d, out = m.stream(), m.stream(), m.al(m.default), m.al(m.default)
        m.fill(s, d, 1)
        for at in ("a", "b", "c"):
            m.join(t, s, at=at)
        m.k(t, d, out)
        m.done()
        return out
    proof = proof_of(ToyRunner(program))
    assert {e.verdict for e in proof.edges} == {MASKED}
    assert all(len(e.masked_with) == 1 and len(e.masked_with[0]) == 2 for e in proof.edges)


def test_edges_outside_the_glob_are_not_judged() -> None:
    assert proof_of(ToyRunner(OK), edges_glob="*/library/*").edges == ()
    assert len(proof_of(ToyRunner(OK), edges_glob="*corpus.py").edges) == 2


def test_an_interrupt_keeps_what_is_known() -> None:
    def interrupt(what: str, done: int, total: int) -> None:
        if what == "edges" and done == 1:
            raise KeyboardInterrupt
    verdicts = [e.verdict for e in proof_of(ToyRunner(OK), progress=interrupt).edges]
    assert verdicts == [RED, "inconclusive"]


def test_an_interrupt_keeps_a_refutation() -> None:
    whole = proof_of(ToyRunner(b05(False))).green.schedules
    seen: list[int] = []

    def late(number: int, run: Run) -> None:
        seen.append(number)
        if len(seen) == whole:  # a difference was seen before
            raise KeyboardInterrupt

    stopped = proof_of(Changed(b05(False), late))
    assert stopped.green.verdict == "refuted" and "inconclusive" in kinds(stopped)
    assert {edge.verdict for edge in stopped.edges} == {"inconclusive"}


def test_instances_count_calls() -> None:
    proved = prove(b47(True, True, True))
    assert [proved.edge(code).instances for code in ("pre", "post", "rs")] == [2, 2, 2]


# -- poison


def test_a_pinned_source_is_live() -> None:
    def program(m: Toy) -> Any:
        s, d, p = m.stream(), m.al(m.default), m.pinned(5)
        m.cp(s, p, d)
        m.done()
        return d
    (message,) = [d.message for d in proof_of(ToyRunner(program)).diagnostics
                  if d.kind == "poison"]
    assert message.startswith("live")


def test_a_source_that_was_consumed_is_inert() -> None:
    def program(m: Toy) -> Any:
        s, d, p = m.stream(), m.al(m.default), m.pinned(5)
        m.cp(s, p, d, staged=True)
        m.done()
        return d
    (message,) = [d.message for d in proof_of(ToyRunner(program)).diagnostics
                  if d.kind == "poison"]
    assert message.startswith("inert")
