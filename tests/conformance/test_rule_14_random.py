"""Rule 14: random numbers take seed and offset at enqueue; deterministic mode fills allocations."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.conformance.device import Device
from tests.conformance.values import N, on_device, value

DRAWS: dict[str, Callable[[], Tensor]] = {
    "rand": lambda: torch.rand(N, device="cuda"),
    "randn": lambda: torch.randn(N, device="cuda"),
    "randint": lambda: torch.randint(1000, (N,), device="cuda"),
    "randperm": lambda: torch.randperm(N, device="cuda"),
    "uniform": lambda: torch.empty(N, device="cuda").uniform_(),
    "normal": lambda: torch.empty(N, device="cuda").normal_(),
    "exponential": lambda: torch.empty(N, device="cuda").exponential_(),
    "bernoulli": lambda: torch.full((N,), 0.5, device="cuda").bernoulli(),
    "dropout": lambda: torch.nn.functional.dropout(torch.ones(N, device="cuda"), 0.5),
    "rand_like": lambda: torch.rand_like(torch.ones(N, device="cuda")),
    "multinomial": lambda: torch.multinomial(torch.ones(N, device="cuda"), 100),
}


@pytest.mark.parametrize("name", list(DRAWS))
def test_a_seed_repeats_the_numbers(gpu: Device, mode: str, name: str) -> None:
    torch.manual_seed(1)
    first, second = DRAWS[name]().tolist(), DRAWS[name]().tolist()
    torch.manual_seed(1)
    assert DRAWS[name]().tolist() == first
    assert DRAWS[name]().tolist() == second
    assert first != second


# multinomial and randperm are left out: the former may wait for the device.
@pytest.mark.parametrize("name", ["rand", "randn", "randint", "uniform", "normal", "dropout"])
def test_seed_and_offset_are_taken_at_enqueue(gpu: Device, mode: str, name: str) -> None:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        torch.manual_seed(1)
        want = [DRAWS[name]().tolist() for _ in range(2)]
        torch.manual_seed(1)
        side.synchronize()
        with gpu.hold(side):
            first = DRAWS[name]()
            torch.manual_seed(1)
            again = DRAWS[name]()
            second = DRAWS[name]()
            torch.manual_seed(99)
    side.synchronize()
    got = [first.tolist(), again.tolist(), second.tolist()]
    # Not in the assert itself: under CI pytest explains that by a full diff, which takes minutes.
    same = got == [want[0], want[0], want[1]]
    assert same


def test_the_order_of_enqueue_decides_across_streams(gpu: Device) -> None:
    one, two = torch.cuda.Stream(), torch.cuda.Stream()
    torch.manual_seed(1)
    want = [torch.rand(N, device="cuda").tolist() for _ in range(2)]
    torch.cuda.synchronize()
    torch.manual_seed(1)
    with gpu.hold(one):
        with torch.cuda.stream(one):
            first = torch.rand(N, device="cuda")
        with torch.cuda.stream(two):
            second = torch.rand(N, device="cuda")
        two.synchronize()
    torch.cuda.synchronize()
    assert [first.tolist(), second.tolist()] == want


def test_the_state_moves_at_enqueue(gpu: Device) -> None:
    side = torch.cuda.Stream()
    torch.cuda.manual_seed(1)
    before = torch.cuda.get_rng_state()
    with torch.cuda.stream(side), gpu.hold(side) as gate:
        torch.rand(N, device="cuda")
        states: list[Tensor] = []
        assert not gpu.waits(gate, lambda: states.append(torch.cuda.get_rng_state()))
    assert not torch.equal(before, states[0])


def test_the_state_can_be_set_back(gpu: Device) -> None:
    state = torch.cuda.get_rng_state()
    first = torch.rand(N, device="cuda").tolist()
    torch.cuda.set_rng_state(state)
    assert torch.rand(N, device="cuda").tolist() == first


def test_host_and_device_generators_are_apart(gpu: Device) -> None:
    torch.manual_seed(1)
    want = torch.rand(4).tolist()
    torch.manual_seed(1)
    torch.rand(4, device="cuda")
    assert torch.rand(4).tolist() == want


def test_torch_manual_seed_seeds_the_device(gpu: Device) -> None:
    torch.manual_seed(3)
    first = torch.rand(4, device="cuda").tolist()
    torch.cuda.manual_seed(3)
    assert torch.rand(4, device="cuda").tolist() == first
    torch.cuda.manual_seed_all(3)
    assert torch.rand(4, device="cuda").tolist() == first
    assert torch.cuda.initial_seed() == 3


def test_a_generator_of_its_own(gpu: Device, mode: str) -> None:
    generator = torch.Generator(device="cuda").manual_seed(5)
    before = torch.cuda.get_rng_state()
    first = torch.rand(N, device="cuda", generator=generator).tolist()
    assert torch.equal(torch.cuda.get_rng_state(), before)
    generator.manual_seed(5)
    assert torch.rand(N, device="cuda", generator=generator).tolist() == first
    assert generator.initial_seed() == 5
    assert generator.device.type == "cuda"


def test_a_generator_state_round_trip(gpu: Device) -> None:
    generator = torch.Generator(device="cuda").manual_seed(5)
    state = generator.get_state()
    assert state.device.type == "cpu"
    first = torch.rand(N, device="cuda", generator=generator).tolist()
    generator.set_state(state)
    assert torch.rand(N, device="cuda", generator=generator).tolist() == first


def test_a_host_generator_is_refused(gpu: Device) -> None:
    text = "Expected a 'cuda' device type for generator but found 'cpu'"
    with pytest.raises(RuntimeError, match=text):
        torch.rand(4, device="cuda", generator=torch.Generator())


def test_a_host_generator_is_refused_where_one_of_the_device_was(gpu: Device) -> None:
    """The address of a generator that died may be given to the next one."""
    generator, graph = torch.Generator("cuda"), torch.cuda.CUDAGraph()
    graph.register_generator_state(generator)  # its state lives on in the graph
    del generator
    for host in [torch.Generator() for _ in range(20)]:
        with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
            torch.rand(4, device="cuda", generator=host)


def test_fork_rng_restores_the_state(gpu: Device) -> None:
    before = torch.cuda.get_rng_state()
    with torch.random.fork_rng(devices=[0]):
        torch.rand(4, device="cuda")
    assert torch.equal(torch.cuda.get_rng_state(), before)


def test_deterministic_mode_fills_floats_with_nan(gpu: Device, mode: str) -> None:
    torch.use_deterministic_algorithms(True)
    assert all(math.isnan(x) for x in torch.empty(N, device="cuda").tolist())
    assert value(torch.empty(N, device="cuda", dtype=torch.int32)) == 2**31 - 1


def test_the_fill_of_deterministic_mode_is_enqueued(gpu: Device, mode: str) -> None:
    side, other = torch.cuda.Stream(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        old = on_device(3, 5 * N)
        address = old.data_ptr()
        del old
    torch.cuda.synchronize()
    torch.use_deterministic_algorithms(True)
    with gpu.hold(side):
        with torch.cuda.stream(side):
            a = torch.empty(5 * N, device="cuda")
        assert a.data_ptr() == address
        with torch.cuda.stream(other):
            a.fill_(1)
        other.synchronize()
    torch.cuda.synchronize()
    assert all(math.isnan(x) for x in a.tolist())


def test_without_the_fill_deterministic_mode_writes_nothing(gpu: Device) -> None:
    torch.use_deterministic_algorithms(True)
    torch.utils.deterministic.fill_uninitialized_memory = False
    old = on_device(3, 5 * N)
    del old
    assert value(torch.empty(5 * N, device="cuda")) == 3


def test_without_deterministic_mode_nothing_is_filled(gpu: Device) -> None:
    old = on_device(3, 5 * N)
    del old
    assert value(torch.empty(5 * N, device="cuda")) == 3
