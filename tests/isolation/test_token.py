from __future__ import annotations

import os
import string
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from redgreen.faults import Fault
from redgreen.schedule import LAZY, SERIAL, Order, Schedule, Torn
from redgreen.token import NotApplicable, Token, Tokens, decode, encode, hash_seed, resolve
from redgreen.trace import EdgeSite, Site

text = st.text(max_size=12)
names = text.map(lambda t: t.replace("/", ""))
sites = st.builds(Site, names, st.integers(0, 9999), text, text, text)
edges = st.builds(EdgeSite, text, sites)
tokens = st.builds(
    Token,
    st.builds(
        Schedule,
        st.sampled_from(["serial", "lazy", "first", "last", "random", "late", "pct"]),
        text,
        st.integers(0, 2**31),
        st.lists(st.builds(Order, text, text), max_size=3).map(tuple),
        st.lists(st.tuples(text, st.booleans()), max_size=3).map(tuple),
        st.lists(st.builds(Torn, text, st.sampled_from(["split", "stale"])), max_size=2).map(tuple),
        st.lists(st.integers(0, 99), max_size=3).map(tuple),
    ),
    st.frozensets(
        st.builds(Fault, st.sampled_from(["drop", "poison", "early", "free"]), edges,
                  uses=st.sampled_from([(), (1,), (0, 2, 30)])), max_size=3),
    text, text, text, text, text,
)  # fmt: skip

LABELS = Order("CopyStream.upload:copy_#3", "Decoder.forward:index_select#3")
EDGE = EdgeSite(
    "wait_event", Site("/home/someone/checkout/engine/staging.py", 131, "Staging.upload",
                       "main.wait_event(self.ready[slot])", "torch/cuda/streams.py:48 wait_event"),
)  # fmt: skip
TYPICAL = Token(Schedule(orders=(LABELS,)), frozenset({Fault("drop", EDGE)}),
                "decode.py:decode", "0", "native", "0123456789ab", "cdef01234567")  # fmt: skip


@given(tokens)
def test_what_is_encoded_is_decoded(token: Token) -> None:
    # File names lose their directories, by intention.
    names = {fault.edge.site.file for fault in token.faults}
    if not any(name in ("", ".", "..") for name in names):
        assert decode(encode(token)) == token


@given(tokens)
def test_a_token_is_one_word_for_every_shell(token: Token) -> None:
    assert set(encode(token)) <= set(string.ascii_letters + string.digits + "-_=.")


def test_a_typical_token_is_short_and_knows_no_directory() -> None:
    token = encode(TYPICAL)
    assert token.startswith("rg1.")
    assert len(token) < 330
    assert "checkout" not in repr(decode(token))


def test_this_versions_tokens_stay_readable() -> None:
    # If this cannot be kept, VERSION must change: tokens are pasted into issues.
    edge = EdgeSite("record", Site("a.py", 3, "f", "e.record()"))
    faults = frozenset({Fault("drop", edge)})
    assert decode(OLD) == Token(LAZY, faults, "a.py:f", "0", "native", "aa", "bb")


OLD = "rg1.ePlTOodYA4pDgx6sPBZdMTxUEsEeMgZGHCj8kJyspBQL1AKWt0qDuAIRe4mJQCIpSSkWABlzHSo="


def test_the_wrapped_form_is_read_too() -> None:
    token = encode(TYPICAL)
    assert decode(token[:50] + "\\\n" + token[50:90] + " \n" + token[90:]) == decode(token)


@pytest.mark.parametrize(
    ("token", "message"),
    [
        ("rg2.abc", "made by another version of redgreen (rg2...., this one reads rg1....)"),
        ("hello", "'hello' is not a redgreen token"),
        ("", "'' is not a redgreen token"),
        ("rg1.", "damaged; copy all of it"),
        ("rg1.!!!", "damaged"),
        (encode(TYPICAL)[:-8], "damaged"),
        (encode(TYPICAL)[:30] + "AAAA" + encode(TYPICAL)[34:], "damaged"),
        (encode(TYPICAL) + "AAAA", "damaged"),
    ],
)
def test_what_is_no_token_is_one_line(token: str, message: str) -> None:
    with pytest.raises(NotApplicable) as error:
        decode(token)
    assert str(error.value).startswith("token not applicable: ")
    assert message in str(error.value) and "\n" not in str(error.value)


def moved(line: int, **changes: str) -> EdgeSite:
    site = EDGE.site
    fields = {"file": "/elsewhere/staging.py", "function": site.function, "code": site.code}
    fields |= changes
    return EdgeSite("wait_event", Site(fields["file"], line, fields["function"], fields["code"],
                                       site.torch_frame))  # fmt: skip


def test_an_edge_is_found_again_after_small_edits() -> None:
    wanted = decode(encode(TYPICAL)).faults
    near, far = moved(140), moved(10)
    assert resolve(wanted, [far, moved(131, code="x"), near]) == {Fault("drop", near)}


@pytest.mark.parametrize(
    "edges", [[], [moved(131, code="x")], [moved(131, function="f")], [moved(131, file="/b.py")]]
)
def test_an_edge_that_is_gone_is_named(edges: list[EdgeSite]) -> None:
    with pytest.raises(NotApplicable, match=r"no edge staging.py:131 wait_event in Staging.upload"):
        resolve(TYPICAL.faults, edges)


def test_a_token_carries_what_is_known_of_its_outcome() -> None:
    digests = {(SERIAL, frozenset[Fault]()): "a" * 32, (LAZY, TYPICAL.faults): "b" * 32}
    token = decode(Tokens("main.py:run", "native", digests)(LAZY, TYPICAL.faults))
    assert (token.base, token.outcome) == ("a" * 12, "b" * 12)
    assert token.hash_seed == hash_seed()
    assert decode(Tokens("main.py:run", "native", {})(LAZY, frozenset())).outcome == ""


@pytest.mark.parametrize(("setting", "seed"), [("5", "5"), ("0", "0"), ("random", "random")])
def test_the_hash_seed_of_the_process(setting: str, seed: str) -> None:
    code = "from redgreen.token import hash_seed; print(hash_seed())"
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True,
                            env={**os.environ, "PYTHONHASHSEED": setting}, check=True)  # fmt: skip
    assert result.stdout.strip() == seed
