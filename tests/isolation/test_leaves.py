from __future__ import annotations

import collections
import dataclasses
import enum
import struct
import types
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from redgreen.leaves import Unreadable, flatten
from redgreen.run import Leaf, Outcome


def one(value: object) -> Leaf:
    (leaf,) = flatten(value)
    return leaf


@pytest.mark.parametrize(
    "dtype",
    [torch.float32, torch.float16, torch.bfloat16, torch.float64, torch.int8, torch.int64,
     torch.uint8, torch.bool, torch.complex64, torch.complex128, torch.float8_e4m3fn],
)  # fmt: skip
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3), (2, 0, 3)])
def test_a_tensor_is_its_bytes(dtype: torch.dtype, shape: tuple[int, ...]) -> None:
    tensor = torch.ones(shape).to(dtype)
    leaf = one(tensor)
    assert leaf.form == f"tensor {str(dtype)[6:]} {shape}"
    assert len(leaf.data) == tensor.numel() * tensor.element_size()
    if dtype == torch.float32:
        assert leaf.data == struct.pack("<f", 1.0) * tensor.numel()


def test_a_view_is_read_in_its_own_order() -> None:
    assert one(torch.arange(4, dtype=torch.uint8)[::2]).data == b"\x00\x02"
    assert one(torch.tensor([1 + 2j]).conj()).data == struct.pack("<ff", 1, -2)
    assert one(torch.arange(4, dtype=torch.uint8).view(2, 2).t()).data == b"\x00\x02\x01\x03"


def test_zeros_of_both_signs_differ_and_nans_with_the_same_bits_do_not() -> None:
    assert one(0.0) != one(-0.0)
    assert one(torch.tensor(0.0)) != one(torch.tensor(-0.0))
    nan = struct.unpack("<d", b"\x01\x00\x00\x00\x00\x00\xf8\x7f")[0]
    assert one(nan) == one(nan)
    assert one(nan) != one(float("nan"))


def test_types_differ_though_values_are_equal() -> None:
    values: list[object] = [1, 1.0, True, "1", b"1", np.int64(1), torch.tensor(1), [1], (1,), {1}]
    assert len({flatten(value) for value in values}) == len(values)


def test_paths_lead_to_the_leaf() -> None:
    @dataclasses.dataclass
    class Result:
        tokens: list[int]
        extra: dict[str, Any]

    pair = collections.namedtuple("pair", "x y")(7, None)
    paths = {leaf.path: leaf.data for leaf in flatten(Result([5, 6], {"p": pair}))}
    assert paths[".tokens[1]"] == b"6"
    assert paths[".extra['p'].x"] == b"7"
    assert paths[".extra['p'].y"] == b""


def test_the_order_in_which_a_mapping_was_filled_is_not_output() -> None:
    assert flatten({"a": 1, "b": 2}) == flatten({"b": 2, "a": 1})
    assert flatten({"a": 1}) != flatten({"a": 2})


def test_nothing_is_no_bytes() -> None:
    assert one(None).data == b""


def test_a_module_is_its_parameters() -> None:
    assert {leaf.path for leaf in flatten(torch.nn.Linear(2, 2))} == {"", ".weight", ".bias"}


def test_sparse_tensors_are_indices_and_values() -> None:
    assert [leaf.path for leaf in flatten([torch.eye(2).to_sparse()])] == [
        "", "[0]", "[0].indices", "[0].values",
    ]  # fmt: skip


def test_host_tensors_are_read_before_device_tensors(monkeypatch: pytest.MonkeyPatch) -> None:
    # Reading a device tensor waits; a host tensor returned without a sync must not profit from it.
    host = torch.zeros(1)

    class Device(torch.Tensor):
        device = torch.device("cuda")  # type: ignore[assignment]

        def detach(self) -> Device:
            return self

        def cpu(self, *args: Any) -> torch.Tensor:  # type: ignore[override]
            host.fill_(1)
            return torch.ones(1)

        layout = torch.strided
        is_nested = is_quantized = False

    device = torch.Tensor._make_subclass(Device, torch.ones(1))
    leaves = flatten([device, host])
    assert leaves[1].data == struct.pack("<f", 1)
    assert leaves[2].data == struct.pack("<f", 0)


@pytest.mark.parametrize("value", [object(), iter([]), torch.nested.nested_tensor([torch.ones(1)])])
def test_what_has_no_bytes_is_refused_by_place(value: object) -> None:
    with pytest.raises(Unreadable, match=r"output at \['x'\]\[0\] is .* return tensors"):
        flatten({"x": [value]})


def test_a_list_inside_itself_is_refused() -> None:
    value: list[object] = []
    value.append(value)
    with pytest.raises(Unreadable, match="contains itself"):
        flatten(value)


def test_what_is_too_deep_is_called_so() -> None:
    value: list[object] = []
    for _ in range(300):
        value = [value]
    with pytest.raises(Unreadable, match=r"in more than 200 containers") as caught:
        flatten(value)
    assert len(str(caught.value)) < 300


def test_an_enum_is_its_name() -> None:
    assert one(enum.Enum("Reason", "STOP LENGTH").STOP).data == b"STOP"  # type: ignore[attr-defined]


json = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.binary(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=8,
)


@given(json, json)
def test_outcomes_are_equal_exactly_if_their_digests_are(left: object, right: object) -> None:
    a, b = Outcome("returned", flatten(left)), Outcome("returned", flatten(right))
    assert (a == b) == (a.digest() == b.digest()) == (repr(left) == repr(right) or a == b)


class _Result:
    """Its repr says less than it holds, as a tensor's does."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    def __repr__(self) -> str:
        return "result"


class _Slotted:
    __slots__ = ("tensor",)

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor


def _buffer(tensor: torch.Tensor) -> torch.nn.Module:
    module = torch.nn.Module()
    module.register_buffer("scratch", tensor, persistent=False)
    return module


@pytest.mark.parametrize(
    "holder",
    [
        lambda t: types.SimpleNamespace(t=t),
        lambda t: {"a": t}.values(), lambda t: {"a": t}.items(),
        _Result, _Slotted, _buffer, lambda t: ValueError(t),
        lambda t: torch.distributions.Normal(t, torch.ones_like(t), validate_args=False),
    ],
)  # fmt: skip
def test_what_a_repr_would_cut_or_round_is_compared_as_bytes(holder: Any) -> None:
    plain, other = torch.full((4096,), 1.5), torch.full((4096,), 1.5)
    other[2000] += 2e-6
    assert repr(plain) == repr(other)
    assert flatten(holder(plain)) != flatten(holder(other))
    assert flatten(holder(plain)) == flatten(holder(plain.clone()))


@pytest.mark.parametrize(
    "value", [{torch.ones(2)}, {torch.ones(2): 1}, slice(torch.ones(1)), print]
)
def test_what_has_no_bytes_in_a_stable_order_is_refused(value: object) -> None:
    with pytest.raises(Unreadable):
        flatten(value)
