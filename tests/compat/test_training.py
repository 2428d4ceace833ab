"""Training loops as users write them: modules, optimizers, autocast, checkpointing, hooks."""

from __future__ import annotations

import copy
import functools
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch._decomp.decompositions import gru_impl, lstm_impl
from torch.func import functional_call, grad, jacrev, vmap
from torch.nn.utils import clip_grad_norm_, parametrizations, parametrize
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from .harness import Snippet, same_as_on_the_cpu


def data(device: str, n: int = 8) -> tuple[Tensor, Tensor]:
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(n, 6, generator=generator)
    y = torch.randint(3, (n,), generator=generator)
    return x.to(device), y.to(device)


def model(device: str) -> nn.Module:
    torch.manual_seed(3)
    return nn.Sequential(nn.Linear(6, 8), nn.LayerNorm(8), nn.GELU(), nn.Linear(8, 3)).to(device)


def train(net: nn.Module, optimizer: torch.optim.Optimizer, device: str, steps: int = 3) -> Any:
    x, y = data(device)
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        loss = F.cross_entropy(net(x), y)
        loss.backward()
        clip_grad_norm_(net.parameters(), 1.0)
        optimizer.step()
        losses.append(loss.item())
    return losses, list(net.state_dict().values())


OPTIMIZERS: dict[str, Any] = {
    "sgd": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, nesterov=True, foreach=False),
    "sgd foreach": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, foreach=True),
    "sgd fused": functools.partial(torch.optim.SGD, lr=0.1, momentum=0.9, fused=True),
    "adam": functools.partial(torch.optim.Adam, foreach=False),
    "adam foreach": functools.partial(torch.optim.Adam, foreach=True),
    "adam fused": functools.partial(torch.optim.Adam, fused=True),
    "adamw foreach": functools.partial(torch.optim.AdamW, foreach=True, amsgrad=True),
    "adamw fused": functools.partial(torch.optim.AdamW, fused=True),
    "adagrad": functools.partial(torch.optim.Adagrad, foreach=True),
    "rmsprop": functools.partial(torch.optim.RMSprop, foreach=True),
    "adamax": functools.partial(torch.optim.Adamax, foreach=True),
    "nadam": functools.partial(torch.optim.NAdam, foreach=True),
    "radam": functools.partial(torch.optim.RAdam, foreach=True),
    "lbfgs": None,
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers(name: str) -> None:
    def snippet(device: str) -> Any:
        net = model(device)
        if name != "lbfgs":
            return train(net, OPTIMIZERS[name](net.parameters()), device)
        x, y = data(device)
        optimizer = torch.optim.LBFGS(net.parameters(), max_iter=3)

        def closure() -> Tensor:
            optimizer.zero_grad()
            loss = F.cross_entropy(net(x), y)
            loss.backward()
            return loss

        return [optimizer.step(closure).item(), list(net.state_dict().values())]

    same_as_on_the_cpu(snippet)


def scheduler(device: str) -> Any:
    net = model(device)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.5)
    decay = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, 3)
    results = []
    for _ in range(3):
        results.append(train(net, optimizer, device, 1))
        decay.step()
    return results, decay.get_last_lr()


def grad_scaler(device: str) -> Any:
    net, (x, y) = model(device), data(device)
    optimizer = torch.optim.AdamW(net.parameters(), foreach=False)
    scaler = torch.amp.GradScaler(device, init_scale=8.0, growth_interval=2)
    for step in range(4):
        loss = F.cross_entropy(net(x), y) * (float("inf") if step == 1 else 1.0)
        optimizer.zero_grad(set_to_none=True)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
        clip_grad_norm_(net.parameters(), 0.5)
        scaler.step(optimizer)
        scaler.update()
    return scaler.get_scale(), scaler.state_dict(), list(net.parameters())


def accumulation(device: str) -> Any:
    net, (x, y) = model(device), data(device)
    for piece, labels in zip(x.chunk(4), y.chunk(4), strict=True):
        (F.cross_entropy(net(piece), labels) / 4).backward()
    return [p.grad for p in net.parameters()]


def optimizer_state(device: str) -> Any:
    net = model(device)
    optimizer = torch.optim.Adam(net.parameters(), foreach=False)
    train(net, optimizer, device, 2)
    twin = copy.deepcopy(net)
    other = torch.optim.Adam(twin.parameters(), foreach=False)
    other.load_state_dict(optimizer.state_dict())
    return train(net, optimizer, device), train(twin, other, device)


def checkpointing(device: str) -> Any:
    net, (x, _) = model(device), data(device)
    x.requires_grad_()
    checkpoint(net, x, use_reentrant=False).sum().backward()
    checkpoint(net, x, use_reentrant=True).pow(2).sum().backward()
    checkpoint_sequential(net, 2, x, use_reentrant=False).sum().backward()
    return x.grad, [p.grad for p in net.parameters()]


def save_on_cpu(device: str) -> Any:
    net, (x, _) = model(device), data(device)
    with torch.autograd.graph.save_on_cpu(pin_memory=device == "cuda"):
        out = net(x).pow(2).sum()
    out.backward()
    return [p.grad for p in net.parameters()]


def saved_tensors_hooks(device: str) -> Any:
    net, (x, _), seen = model(device), data(device), []

    def pack(t: Tensor) -> Tensor:
        seen.append(tuple(t.shape))
        return t.to("cpu")

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t.to(device)):
        out = net(x).sum()
    out.backward()
    return seen, [p.grad for p in net.parameters()]


def hooks(device: str) -> Any:
    net, (x, _), seen = model(device), data(device), []
    handles = [
        net[0].register_forward_pre_hook(lambda m, i: seen.append(["pre", i[0].clone()])),
        net[0].register_forward_hook(lambda m, i, o: o * 2),
        net[3].register_full_backward_hook(lambda m, gi, go: seen.append(["back", go[0].clone()])),
        net[3].weight.register_hook(lambda g: g * 3),
        net[3].bias.register_post_accumulate_grad_hook(lambda p: seen.append(["post", p.grad + 0])),
    ]
    net(x).sum().backward()
    for handle in handles:
        handle.remove()
    return seen, [p.grad for p in net.parameters()], net(x)


def tied_weights(device: str) -> Any:
    class Tied(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed = nn.Embedding(3, 6)
            self.head = nn.Linear(6, 3, bias=False)
            self.head.weight = self.embed.weight

        def forward(self, ids: Tensor) -> Tensor:
            return self.head(self.embed(ids))

    torch.manual_seed(2)
    net = Tied()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.1)  # before the move, as many do
    net.to(device)
    assert net.head.weight is net.embed.weight
    _, y = data(device)
    F.cross_entropy(net(y), y).backward()
    optimizer.step()
    return len(list(net.parameters())), list(net.state_dict().values())


def parametrized(device: str) -> Any:
    class Symmetric(nn.Module):
        def forward(self, w: Tensor) -> Tensor:
            return w.triu() + w.triu(1).mT

    torch.manual_seed(4)
    layer = nn.Linear(6, 6)
    parametrize.register_parametrization(layer, "weight", Symmetric())
    normed = parametrizations.weight_norm(nn.Linear(6, 3))
    net = nn.Sequential(layer, normed).to(device)
    x, y = data(device)
    F.cross_entropy(net(x), y).backward()
    return [p.grad for p in net.parameters()], layer.weight


def functional(device: str) -> Any:
    net, (x, y) = model(device), data(device)
    parameters = {k: v.detach() for k, v in net.named_parameters()}

    def loss(p: dict[str, Tensor], a: Tensor, b: Tensor) -> Tensor:
        return F.cross_entropy(functional_call(net, p, (a[None],)), b[None])

    per_sample = vmap(grad(loss), in_dims=(None, 0, 0))(parameters, x, y)
    jacobian = jacrev(lambda a: a.sin().sum(0))(x)
    return functional_call(net, parameters, (x,)), per_sample, jacobian


def moving(device: str) -> Any:
    net = nn.BatchNorm1d(6)
    weight = net.weight
    net.to(device).train()(data(device)[0])
    assert net.weight is weight and weight.device.type == device
    moved = net.to(torch.float64)
    out = moved(data(device)[0].double()).detach()
    back = moved.to("cpu", torch.float32)
    assert back.weight.device.type == "cpu"
    return out, list(back.state_dict().values())


def assigning_data(device: str) -> Any:
    net = nn.Linear(3, 2).to(device)
    weight = net.weight
    net.weight.data = torch.arange(6.0).view(2, 3).to(device)
    net.bias.data.fill_(1)
    net.bias.data[0] = 5
    assert net.weight is weight
    out = net(torch.ones(1, 3, device=device))
    net.weight.data = net.weight.data.to("cpu")
    kept = net.weight.device.type
    net.weight.data = net.weight.data.to(device)
    return out, kept, net(torch.ones(1, 3, device=device))


def recurrent(device: str) -> Any:
    """The CPU has fused kernels of its own, with other rounding: torch's formulas are its side."""
    torch.manual_seed(5)
    lstm, gru = nn.LSTM(6, 4, 2, batch_first=True).to(device), nn.GRU(6, 4).to(device)
    x = data(device)[0].view(2, 4, 6).requires_grad_()
    if device == "cpu":
        zeros = torch.zeros(2, 2, 4)
        out, h, c = lstm_impl(
            x, [zeros, zeros], lstm._flat_weights, True, 2, 0.0, True, False, True
        )
        out_2, _ = gru_impl(
            x, torch.zeros(1, 4, 4), gru._flat_weights, True, 1, 0.0, True, False, False
        )
    else:
        out, (h, c) = lstm(x)
        out_2, _ = gru(x)
    (out.sum() + h.sum() + c.sum() + out_2.sum()).backward()
    return out, h, c, out_2, x.grad, lstm.weight_ih_l0.grad


def convolution(device: str) -> Any:
    torch.manual_seed(6)
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 3),
    ).to(device)  # fmt: skip
    x = torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1)).to(device)
    net(x).pow(2).sum().backward()
    channels_last = net.to(memory_format=torch.channels_last)
    out = channels_last(x.to(memory_format=torch.channels_last))
    return out, [p.grad for p in net.parameters()], list(net.buffers())


def attention(device: str) -> Any:
    torch.manual_seed(7)
    block = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True).to(device)
    x = torch.randn(2, 5, 8, generator=torch.Generator().manual_seed(1)).to(device)
    x.requires_grad_()
    out = block(x)
    out.sum().backward()
    q = x.detach().view(2, 5, 2, 4).transpose(1, 2)
    mask = torch.ones(5, 5, dtype=torch.bool, device=device).tril()
    with torch.inference_mode():
        fused = F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        chain = F.scaled_dot_product_attention(q, q, q, is_causal=True)
    block.eval()
    with torch.no_grad():
        return out, x.grad, fused, chain, block(x)


def custom_function(device: str) -> Any:
    class Exp(torch.autograd.Function):
        @staticmethod
        def forward(ctx: Any, x: Tensor) -> Tensor:
            y = x.exp()
            ctx.save_for_backward(y)
            return y

        @staticmethod
        def backward(ctx: Any, *grads: Tensor) -> Tensor:
            (y,) = ctx.saved_tensors
            return grads[0] * y

    x = data(device)[0].requires_grad_()
    Exp.apply(x).sum().backward()
    (second,) = torch.autograd.grad((x.sin() ** 2).sum(), x, create_graph=True)
    second.sum().backward()
    return x.grad


def compiled_eagerly(device: str) -> Any:
    @torch.compile(backend="eager")
    def step(a: Tensor) -> Tensor:
        return (a * 2).relu().sum(1)

    return step(data(device)[0])


def compiled_by_default(device: str) -> Any:
    """Also a module, which keeps its parameters, and a call that was compiled in place. What the
    default compiles for the CPU is rounded otherwise."""
    how = {} if device == "cuda" else {"backend": "eager"}
    net, parts = model(device), model(device)
    whole = torch.compile(net, **how)
    parts.compile(**how)
    step = torch.compile(lambda a: (a * 2).relu(), dynamic=True, **how)
    x = data(device)[0]
    outputs = [whole(step(x)), parts(step(x))]
    sum(outputs).sum().backward()
    return [*outputs, *(p.grad for p in whole.parameters())]


def compile_disabled(device: str) -> Any:
    @torch.compiler.disable
    def inner(a: Tensor) -> Tensor:
        return a * 2

    return inner(data(device)[0])


def traced(device: str) -> Any:
    net = model(device)
    return torch.fx.symbolic_trace(net)(data(device)[0])


def ema(device: str) -> Any:
    net = model(device)
    average = torch.optim.swa_utils.AveragedModel(net, avg_fn=lambda a, p, n: a * 0.9 + p * 0.1)
    train(net, torch.optim.SGD(net.parameters(), lr=0.1, foreach=False), device, 2)
    average.update_parameters(net)
    return list(average.state_dict().values())


def losses(device: str) -> Any:
    x, y = data(device)
    a, b = x[:, :3].sigmoid(), x[:, 3:].sigmoid()
    return [
        F.mse_loss(a, b), F.l1_loss(a, b), F.smooth_l1_loss(a, b), F.binary_cross_entropy(a, b),
        F.nll_loss(a, y), F.kl_div(a.log(), b, reduction="batchmean"), F.huber_loss(a, b),
        F.cosine_embedding_loss(a, b, torch.ones(8, device=device)),
        F.cross_entropy(a, y, label_smoothing=0.1), F.cross_entropy(a, y, ignore_index=1),
    ]  # fmt: skip


def embedding_bag(device: str) -> Any:
    torch.manual_seed(8)
    bag = nn.EmbeddingBag(10, 4, mode="sum").to(device)
    ids = torch.tensor([1, 2, 4, 5, 4, 3], device=device)
    out = bag(ids, torch.tensor([0, 3], device=device))
    out.sum().backward()
    return out, bag.weight.grad


SNIPPETS: list[Snippet] = [
    scheduler, grad_scaler, accumulation, optimizer_state, checkpointing, save_on_cpu,
    saved_tensors_hooks, hooks, tied_weights, parametrized, functional, moving, assigning_data,
    recurrent, convolution, attention, custom_function, compiled_eagerly, compiled_by_default,
    compile_disabled, traced,
    ema, losses, embedding_bag,
]  # fmt: skip


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: s.__name__)
def test_training(snippet: Snippet) -> None:
    same_as_on_the_cpu(snippet)
