"""The API of torch.cuda and torch.accelerator, as programs ask it."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from .harness import Snippet, same_as_on_the_cpu, works


def devices(device: str) -> Any:
    assert torch.cuda.is_available() and torch.cuda.device_count() == 1
    assert torch.cuda.current_device() == 0
    for place in (0, "cuda", "cuda:0", torch.device("cuda"), torch.device("cuda", 0)):
        assert torch.ones(1, device=place).device == torch.device("cuda:0")
        assert torch.ones(1).to(place).is_cuda
        with torch.cuda.device(place):
            assert torch.cuda.current_device() == 0
    torch.cuda.set_device(0)
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.ones(1).to("cuda:1")
    with pytest.raises(RuntimeError, match="invalid device ordinal"):
        torch.cuda.set_device(3)
    a = torch.ones(1, device="cuda")
    assert a.get_device() == 0 and a.device.index == 0 and str(a.device) == "cuda:0"
    assert not a.is_cpu and a.cuda() is a and a.cpu().cuda().is_cuda
    with torch.cuda.device_of(a):
        pass


def properties(device: str) -> Any:
    p = torch.cuda.get_device_properties(0)
    assert p.total_memory == torch.cuda.mem_get_info()[1] > 1 << 30
    assert (p.major, p.minor) == torch.cuda.get_device_capability() == (9, 0)
    assert p.name == torch.cuda.get_device_name() and p.multi_processor_count > 0
    assert torch.cuda.is_bf16_supported() and torch.cuda.is_initialized()
    assert torch.version.cuda and "sm_90" in torch.cuda.get_arch_list()
    torch.cuda.init()


def memory(device: str) -> Any:
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before, free = torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0]
    a = torch.empty(1 << 20, device="cuda")
    assert torch.cuda.memory_allocated() - before == 4 << 20
    assert torch.cuda.memory_reserved() >= torch.cuda.memory_allocated()
    assert free - torch.cuda.mem_get_info()[0] >= 4 << 20
    del a
    assert torch.cuda.memory_allocated() == before
    assert torch.cuda.max_memory_allocated() - before == 4 << 20
    torch.cuda.reset_peak_memory_stats()
    assert torch.cuda.max_memory_allocated() == before
    stats = torch.cuda.memory_stats()
    assert stats["allocated_bytes.all.current"] == before and stats["num_ooms"] == 0
    torch.cuda.empty_cache()
    assert torch.cuda.memory_reserved() == before
    assert isinstance(torch.cuda.memory_summary(), str)
    torch.cuda.memory.set_per_process_memory_fraction(0.5)
    assert torch.cuda.memory.memory_allocated() == before


def streams(device: str) -> Any:
    a, side = torch.ones(4, device="cuda"), torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        b = a * 2
        event = side.record_event()
    torch.cuda.current_stream().wait_event(event)
    b.record_stream(torch.cuda.current_stream())
    assert isinstance(side, torch.Stream) and isinstance(event, torch.Event)
    assert side != torch.cuda.default_stream() == torch.cuda.current_stream()
    assert torch.cuda.Stream(stream_id=side.stream_id, device_index=0, device_type=1) == side
    assert side.device == torch.device("cuda:0") and side in {side}
    return b


def timing(device: str) -> Any:
    start, stop = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    torch.ones(4, device="cuda").mul_(2)
    stop.record()
    torch.cuda.synchronize()
    assert start.query() and start.elapsed_time(stop) > 0


def accelerator(device: str) -> Any:
    acc = torch.accelerator
    assert acc.is_available() and acc.device_count() == 1
    assert acc.current_accelerator() == torch.device("cuda")
    assert acc.current_device_index() == 0
    side = torch.Stream(device="cuda")
    event = torch.Event("cuda", enable_timing=True)
    with side:
        assert acc.current_stream() == side
        a = torch.ones(3, device=acc.current_accelerator()) * 2
        event.record()
    acc.current_stream().wait_event(event)
    acc.synchronize()
    assert event.query() and acc.memory_allocated() > 0
    acc.empty_cache()
    module = torch.get_device_module("cuda")
    assert module is torch.cuda is torch.get_device_module()
    assert torch.get_device_module("cpu") is torch.cpu
    return a


def default_device(device: str) -> Any:
    torch.set_default_device("cuda")
    try:
        a = [torch.ones(2), torch.tensor([1.0]), torch.arange(3), nn.Linear(2, 1).weight]
        assert all(t.is_cuda for t in a) and torch.get_default_device().type == "cuda"
    finally:
        torch.set_default_device(None)
    with torch.device("cuda"):
        b = [torch.zeros(2), torch.rand(2), torch.as_tensor([1]), nn.Linear(2, 1).bias]
        assert all(t.is_cuda for t in b)
        assert not torch.ones(1, device="cpu").is_cuda
    assert not torch.ones(1).is_cuda


def nvtx(device: str) -> Any:
    with torch.cuda.nvtx.range("step"):
        torch.cuda.nvtx.range_push("inner")
        a = torch.ones(2, device="cuda")
        torch.cuda.nvtx.range_pop()
        torch.cuda.nvtx.mark("here")
    with torch.autograd.profiler.record_function("block"):
        a = a + 1
    return a


def old_amp(device: str) -> Any:
    a = torch.ones(2, 2, device="cuda")
    with torch.cuda.amp.autocast(dtype=torch.bfloat16):
        b = a @ a
    assert b.dtype is torch.bfloat16
    scaler = torch.cuda.amp.GradScaler()
    assert scaler.is_enabled()
    return b, scaler.scale(a)


def graphs(device: str) -> Any:
    a = torch.arange(4.0, device="cuda")
    pool = torch.cuda.graph_pool_handle()
    first, second = torch.cuda.CUDAGraph(), torch.cuda.CUDAGraph()
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        a * 2 + 1
    torch.cuda.current_stream().wait_stream(side)
    with torch.cuda.graph(first, pool=pool):
        b = a * 2
    with torch.cuda.graph(second, pool=pool, capture_error_mode="thread_local"):
        c = b + 1
    results = []
    for step in range(3):
        a.fill_(step)
        first.replay()
        second.replay()
        results.append(c.clone())
    assert first.pool() == second.pool() == pool
    first.reset()
    return results


def graphed_callables(device: str) -> Any:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).cuda()
    x = torch.arange(6.0).view(2, 3).cuda()
    want = net(x)
    want.sum().backward()
    grads = [p.grad.clone() for p in net.parameters()]
    net.zero_grad(set_to_none=True)
    graphed = torch.cuda.make_graphed_callables(net, (torch.zeros_like(x),))
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    out = graphed(x)
    assert torch.equal(out, want)
    out.sum().backward()
    assert all(torch.equal(p.grad, g) for p, g in zip(net.parameters(), grads, strict=True))
    optimizer.step()
    return graphed(x)


def memory_pools(device: str) -> Any:
    pool = torch.cuda.MemPool()
    with torch.cuda.use_mem_pool(pool):
        a = torch.ones(1000, device="cuda")
    b = torch.ones(1000, device="cuda")
    assert a.data_ptr() != b.data_ptr() and isinstance(pool.id, tuple)
    return a + b


def random_state(device: str) -> Any:
    torch.cuda.manual_seed_all(4)
    state = torch.cuda.get_rng_state()
    first = torch.rand(3, device="cuda")
    torch.cuda.set_rng_state(state)
    assert torch.equal(torch.rand(3, device="cuda"), first)
    states = torch.cuda.get_rng_state_all()
    with torch.random.fork_rng():
        torch.rand(3, device="cuda")
    assert torch.equal(states[0], torch.cuda.get_rng_state())
    generator = torch.Generator("cuda").manual_seed(7)
    twin = generator.clone_state()
    a = torch.randn(3, device="cuda", generator=generator)
    assert torch.equal(a, torch.randn(3, device="cuda", generator=twin))
    with pytest.raises(RuntimeError, match="Expected a 'cuda' device type for generator"):
        torch.rand(1, device="cuda", generator=torch.Generator())
    assert len(torch.cuda.default_generators) == 1
    return first, a


def threads(device: str) -> Any:
    results: list[Tensor] = []

    def work() -> None:
        with torch.cuda.stream(torch.cuda.Stream()):
            a = torch.arange(3.0, device="cuda").requires_grad_()
            (a * a).sum().backward()
            torch.cuda.current_stream().synchronize()
            results.append(a.grad)

    found = [threading.Thread(target=work) for _ in range(2)]
    for thread in found:
        thread.start()
    for thread in found:
        thread.join()
    return results


def backends(device: str) -> Any:
    torch.backends.cuda.matmul.allow_tf32 = True
    torch.backends.cudnn.benchmark = True
    torch.set_float32_matmul_precision("high")
    assert torch.backends.cuda.is_built()
    assert torch.backends.cuda.flash_sdp_enabled() in (True, False)
    torch.cuda.set_sync_debug_mode("default")
    torch.cuda.set_stream(torch.cuda.default_stream())
    torch.set_float32_matmul_precision("highest")


SNIPPETS: list[Snippet] = [
    devices, properties, memory, streams, timing, accelerator, default_device, nvtx, old_amp,
    graphs, graphed_callables, memory_pools, random_state, threads, backends,
]  # fmt: skip


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: s.__name__)
def test_cuda_api(snippet: Snippet) -> None:
    works(snippet)


def test_without_a_gpu_torch_is_as_before() -> None:
    """After the block, in the same process."""

    def snippet(device: str) -> Any:
        if device == "cpu":
            assert not torch.cuda.is_available()
            with pytest.raises((RuntimeError, AssertionError)):
                torch.ones(1, device="cuda")
            assert torch.Stream is torch._C.Stream or not hasattr(torch._C, "Stream")
        return torch.ones(2, device=device) + 1

    same_as_on_the_cpu(snippet)
