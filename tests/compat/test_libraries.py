"""Libraries that programs use beside torch: loading data, files, offloading, models."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest
import safetensors.torch as safetensors
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset, TensorDataset

from .harness import Snippet, same_as_on_the_cpu


class Rows(Dataset[tuple[Tensor, int]]):
    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return torch.full((3,), float(index)), index


def loaded(device: str, **options: Any) -> Any:
    results = []
    for rows, labels in DataLoader(Rows(), batch_size=2, pin_memory=device == "cuda", **options):
        assert rows.is_pinned() == (device == "cuda")
        there = rows.to(device, non_blocking=True)
        results.append((there * 2, labels.to(device, non_blocking=True) + 1))
    return results


def without_workers(device: str) -> Any:
    return loaded(device)


def two_workers(device: str) -> Any:
    return loaded(device, num_workers=2)


def tensor_dataset(device: str) -> Any:
    data = TensorDataset(torch.arange(6.0).view(3, 2), torch.arange(3))
    generator = torch.Generator().manual_seed(1)
    loader = DataLoader(data, batch_size=2, shuffle=True, generator=generator)
    return [x.to(device) + y.to(device)[:, None] for x, y in loader]


def safe_file(device: str) -> Any:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "model.safetensors"
        torch.manual_seed(1)
        net = nn.Linear(3, 2).to(device)
        safetensors.save_file(net.state_dict(), path)
        loaded = safetensors.load_file(path, device=device)
        other = nn.Linear(3, 2).to(device)
        other.load_state_dict(loaded)
        with safetensors.safe_open(path, framework="pt", device=device) as file:
            pieces = [file.get_tensor(k) for k in sorted(file.keys())]
            part = file.get_slice("weight")[:1]
        missing = safetensors.load_model(other, path)
    assert all(t.device.type == device for t in [*loaded.values(), *pieces, part])
    return loaded, other.state_dict(), pieces, part, [list(m) for m in missing]


def tiny(hidden: int = 16) -> Any:
    from transformers import LlamaConfig, LlamaForCausalLM

    torch.manual_seed(3)
    return LlamaForCausalLM(
        LlamaConfig(
            vocab_size=32, hidden_size=hidden, intermediate_size=32, num_hidden_layers=2,
            num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=64,
        )
    ).eval()  # fmt: skip


PROMPT = [[1, 5, 9, 3], [2, 8, 4, 7]]


def generate(device: str, **options: Any) -> Any:
    net = tiny().to(device)
    ids = torch.tensor(PROMPT, device=device)
    mask = torch.ones_like(ids)
    settings = {"max_new_tokens": 5, "do_sample": False, "pad_token_id": 0}
    return net.generate(ids, attention_mask=mask, **settings, **options)


def generate_dynamic(device: str) -> Any:
    return generate(device)


def generate_static(device: str) -> Any:
    return generate(device, cache_implementation="static", disable_compile=True)


def generate_beams(device: str) -> Any:
    return generate(device, num_beams=2)


def language_model_step(device: str) -> Any:
    net = tiny().to(device).train()
    ids = torch.tensor(PROMPT, device=device)
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3, foreach=True)
    losses = []
    for _ in range(2):
        out = net(input_ids=ids, labels=ids)
        out.loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(out.loss.item())
    return losses, net.lm_head.weight


def gradient_checkpointing(device: str) -> Any:
    net = tiny().to(device).train()
    net.gradient_checkpointing_enable()
    ids = torch.tensor(PROMPT, device=device)
    net(input_ids=ids, labels=ids, use_cache=False).loss.backward()
    return net.model.layers[0].mlp.up_proj.weight.grad


def pretrained(device: str) -> Any:
    from transformers import LlamaForCausalLM

    with tempfile.TemporaryDirectory() as folder:
        tiny().to(device).save_pretrained(folder)
        net = LlamaForCausalLM.from_pretrained(folder).to(device)
        half = LlamaForCausalLM.from_pretrained(folder, dtype=torch.bfloat16).to(device)
        assert net.device.type == half.device.type == device
        return net.state_dict(), half.state_dict()


def cpu_offload(device: str) -> Any:
    import accelerate

    torch.manual_seed(2)
    net = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2))
    x = torch.ones(1, 3)
    if device == "cpu":
        return net(x)
    accelerate.cpu_offload(net, execution_device=torch.device("cuda:0"))
    with torch.no_grad():
        out = [net(x.cuda()) for _ in range(2)]
    assert torch.equal(*out) and out[0].is_cuda
    return out[0]


def offload_hooks(device: str) -> Any:
    import accelerate

    torch.manual_seed(2)
    net = nn.Linear(3, 2)
    x = torch.ones(1, 3)
    if device == "cpu":
        return net(x), net(x)
    hooked, hook = accelerate.cpu_offload_with_hook(net, execution_device="cuda:0")
    with torch.no_grad():
        first = hooked(x)
        hook.offload()
        assert net.weight.device.type == "cpu"
        return first, hooked(x)


def accelerator(device: str) -> Any:
    import accelerate

    torch.manual_seed(4)
    net = nn.Linear(3, 2)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1, foreach=False)
    loader = DataLoader(TensorDataset(torch.arange(12.0).view(4, 3)), batch_size=2)
    engine = accelerate.Accelerator(cpu=device == "cpu")
    net, optimizer, loader = engine.prepare(net, optimizer, loader)
    for (x,) in loader:
        assert x.device.type == device
        loss = net(x).pow(2).mean()
        engine.backward(loss)
        engine.clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
    accelerate.state.AcceleratorState._reset_state(reset_partial_state=True)
    return list(engine.unwrap_model(net).state_dict().values())


SNIPPETS: list[Snippet] = [
    without_workers, two_workers, tensor_dataset, safe_file, generate_dynamic, generate_static,
    generate_beams, language_model_step, gradient_checkpointing, pretrained, cpu_offload,
    offload_hooks, accelerator,
]  # fmt: skip


@pytest.fixture(scope="module", autouse=True)
def imported() -> None:
    """In the template, so that children do not each import them."""
    import accelerate  # noqa: F401
    from transformers import LlamaForCausalLM, generation  # noqa: F401


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: s.__name__)
def test_libraries(snippet: Snippet) -> None:
    same_as_on_the_cpu(snippet)
