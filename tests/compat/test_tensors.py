"""Tensors as programs handle them: operators, copies, files, devices, NumPy."""

from __future__ import annotations

import copy
import io
import pickle
from typing import Any

import numpy as np
import pytest
import safetensors.torch as safetensors
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .harness import Snippet, refused, same_as_on_the_cpu


def grid(device: str, *shape: int) -> Tensor:
    count = int(np.prod(shape))
    return (torch.arange(count, dtype=torch.float32) * 7 % 11 - 4).view(shape).to(device)


def arithmetic(device: str) -> Any:
    a, b = grid(device, 3, 4), grid(device, 4)
    half = a.half()
    return [
        a + b,
        2 - a,
        a / 3,
        a // 2,
        a % 3,
        a**2,
        a @ b,
        -a,
        a > b,
        a == 0,
        (a > 0) & (b < 3),
        half * 2.5,
        half + a,
        a.int() << 1,
        a.sum(0, keepdim=True),
        a.mean(),
        a.std(1),
        a.var(),
        a.max(1),
        a.argmin(0),
        a.clamp(-1, 2),
        a.cumsum(1),
        a.norm(),
        a.prod(0),
        torch.addmm(b, a, grid(device, 4, 4)),
        torch.lerp(a, a + 1, 0.3),
        a.softmax(-1),
        a.logsumexp(0),
    ]


def indexing(device: str) -> Any:
    a = grid(device, 4, 5)
    rows = torch.tensor([3, 0], device=device)
    a[0, 1:3] = 9
    a[rows] += 1
    a[:, 4] = torch.arange(4.0, device=device)
    a[a > 6] = 0
    a[[1, 2], [0, 3]] = torch.tensor([5.0, 6.0], device=device)
    a.index_put_((rows, rows), torch.ones(2, device=device), accumulate=True)
    return [
        a,
        a[rows],
        a[:, rows],
        a[rows, rows],
        a[None, ..., -1],
        a[a > 2],
        a[torch.tensor(1)],
        a.gather(1, rows.view(2, 1)),
        a.take(rows),
        a.index_select(0, rows),
        a.flip(0),
        a.roll(1),
        torch.zeros(4, 5, device=device).scatter_(0, rows.view(1, 2), 2.0),
        a.tril(),
        a.diagonal(),
        torch.take_along_dim(a, a.argsort(1), 1),
        a.masked_fill(a < 0, 7),
        a.unfold(1, 2, 1),
        a.masked_select(a > 1),
        a.nonzero(),
        torch.where(a > 0),
        a.count_nonzero(),
    ]


def sorting(device: str) -> Any:
    a = grid(device, 40)
    values, inverse, counts = a.unique(return_inverse=True, return_counts=True)
    return [
        a.sort(stable=True),
        a.topk(5),
        a.kthvalue(3),
        a.median(),
        values,
        inverse,
        counts,
        a.unique_consecutive(),
        torch.bincount(a.long() + 4),
        torch.histc(a, 4),
        a.argsort().sort(),
        torch.searchsorted(values, a),
        torch.bucketize(a, values),
        torch.isin(a, values[:2]),
        a.mode(),
    ]


def shapes(device: str) -> Any:
    a = grid(device, 2, 6)
    return [
        a.view(3, 4),
        a.t().contiguous(),
        a.reshape(-1),
        a.permute(1, 0),
        a.unsqueeze(0).expand(3, 2, 6),
        a.repeat(2, 1),
        torch.cat([a, a], 1),
        torch.stack([a, a]),
        a.chunk(2, 1),
        a.split([1, 5], 1),
        a.movedim(0, 1),
        a.repeat_interleave(2, 0),
        torch.meshgrid(a[0], a[1], indexing="ij"),
        F.pad(a, (1, 2)),
        F.interpolate(a[None], scale_factor=2.0),
        torch.block_diag(a, a),
        a.tile(2),
        a.repeat_interleave(torch.tensor([1, 3], device=device), 0),
        torch.atleast_3d(a),
        a.ravel(),
    ]


def factories(device: str) -> Any:
    a = grid(device, 2, 3)
    return [
        torch.arange(5, device=device),
        torch.linspace(0, 1, 4, device=device),
        torch.eye(3, device=device),
        torch.full((2,), 3, device=device),
        torch.tensor([[1, 2]], device=device),
        torch.as_tensor(np.arange(3), device=device),
        torch.zeros_like(a),
        a.new_tensor([1.0, 2.0]),
        a.new_full((2,), 4),
        torch.asarray([1.5], device=device),
        torch.tril_indices(3, 3, device=device),
        torch.tensor(2.5, device=device),
        torch.from_numpy(np.ones(2)).to(device),
        a.new_zeros(2),
        torch.ones(2, dtype=torch.bool, device=device),
        torch.complex(a, a),
        torch.scalar_tensor(3.0, device=device),
        torch.hann_window(4, device=device),
        torch.logspace(0, 1, 3, device=device),
    ]


def einsum(device: str) -> Any:
    a, b = grid(device, 2, 3, 4), grid(device, 2, 4, 3)
    return [
        torch.einsum("bij,bjk->bik", a, b),
        torch.einsum("bij,bji->b", a, b),
        torch.einsum("bij->ji", a),
        torch.bmm(a, b),
        torch.tensordot(a, b, dims=([2], [1])),
        torch.kron(a[0], b[0]),
        torch.outer(a[0, 0], a[0, 1]),
        torch.baddbmm(torch.zeros(1, 3, 3, device=device), a, b),
        torch.cdist(a, a),
        torch.matmul(a, b[0]),
    ]


def linear_algebra(device: str) -> Any:
    a = grid(device, 4, 4) + 10 * torch.eye(4, device=device)
    symmetric = a @ a.mT
    return [
        torch.linalg.inv(a),
        torch.linalg.solve(a, a[0]),
        torch.linalg.cholesky(symmetric),
        torch.linalg.det(a),
        torch.linalg.eigh(symmetric).eigenvalues,
        torch.linalg.qr(a),
        torch.linalg.svd(a).S,
        torch.linalg.matrix_norm(a),
        torch.fft.fft(a),
        torch.fft.irfft(torch.fft.rfft(a)),
        torch.linalg.lstsq(a, a, driver="gels").solution,
        torch.triangular_solve(a, symmetric)[0],
    ]


def in_place(device: str) -> Any:
    a = grid(device, 3, 4)
    a.t_()
    a.unsqueeze_(0).squeeze_()
    b = a[1:]
    b.mul_(2).add_(a[:3] * 0.5, alpha=2).clamp_(max=20)
    out = torch.empty(0, device=device)
    torch.add(a, 1, out=out)
    a.zero_()[0].fill_(3)
    c = torch.empty(2, device=device).copy_(torch.tensor([1.0, 2.0]))
    c.resize_(1)
    return [a, b, out, c]


def numbers(device: str) -> Any:
    a = grid(device, 3)
    i = a[0].long()
    return [
        a.tolist(),
        a[1].item(),
        float(a[2]),
        int(i),
        bool(a[0] < 0),
        list(range(9))[-i],
        f"{a[0]:.2f}",
        round(a.mean().item(), 3),
        len(a),
        a.sum().cpu().numpy().tolist(),
        [x.item() for x in a],
        a.dim(),
        torch.equal(a, a.clone()),
        torch.allclose(a, a + 1e-9),
        a.numel(),
        2.0 in a,
        str(a.cpu()),
        np.asarray(a.cpu()).sum(),
        [float(x) for x in iter(a)],
        torch.is_tensor(a),
        a.element_size(),
    ]


def deep_copies(device: str) -> Any:
    torch.manual_seed(1)
    net = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2)).to(device)
    net(grid(device, 4, 3)).sum().backward()
    twin = copy.deepcopy(net)
    with torch.no_grad():
        net[0].weight.zero_()
    tensor = grid(device, 3)
    shared = copy.deepcopy({"a": tensor, "b": tensor})
    shared["a"].add_(1)
    shallow = copy.copy(tensor)
    shallow.add_(1)
    return [twin.state_dict(), twin[0].weight.grad, shared, tensor, twin[0].weight.requires_grad]


def pickles(device: str) -> Any:
    a = grid(device, 4, 3)
    loaded = pickle.loads(pickle.dumps({"a": a, "view": a[1:], "p": nn.Parameter(a.clone())}))
    loaded["a"].add_(1)
    return loaded, loaded["view"].device.type == device, loaded["p"].requires_grad


def saved_and_loaded(device: str) -> Any:
    torch.manual_seed(2)
    net = nn.Linear(3, 2).to(device)
    optimizer = torch.optim.Adam(net.parameters(), foreach=False)
    net(grid(device, 4, 3)).sum().backward()
    optimizer.step()
    file = io.BytesIO()
    torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict()}, file)
    results: list[Any] = []
    for place in (device, torch.device(device), "cpu", {"cuda:0": "cpu"}, lambda s, _: s, None):
        file.seek(0)
        loaded = torch.load(file, map_location=place, weights_only=not callable(place))
        results.append([loaded["net"], loaded["optimizer"]["state"][0]["exp_avg"]])
    other = nn.Linear(3, 2).to(device)
    other.load_state_dict(loaded["net"])
    return results, other.state_dict(), results[2][0]["weight"].device.type


def safe_files(device: str) -> Any:
    a = {"x": grid(device, 3, 2), "y": grid(device, 4).half()}
    data = safetensors.save(a)
    loaded = {k: v.to(device) for k, v in safetensors.load(data).items()}
    return loaded, len(data)


def state_dicts(device: str) -> Any:
    torch.manual_seed(3)
    net, other = nn.BatchNorm1d(3).to(device), nn.BatchNorm1d(3)
    net(grid(device, 4, 3))
    weight = other.weight
    other.load_state_dict(net.state_dict())
    assert other.weight is weight and weight.device.type == "cpu"
    assigned = nn.BatchNorm1d(3)
    assigned.load_state_dict(net.state_dict(), assign=True)
    meta = nn.Linear(3, 2, device="meta")
    meta.to_empty(device=device)
    meta.load_state_dict({"weight": torch.ones(2, 3), "bias": torch.zeros(2)})
    return (
        other.state_dict(),
        assigned.running_mean,
        assigned.weight.device.type == device,
        meta.weight,
    )


def conversions(device: str) -> Any:
    a = torch.arange(6.0).view(2, 3)
    b = a.to(device)
    assert b.to(device) is b
    return [
        a.to(device, torch.float16),
        b.to(a),
        b.double(),
        b.type(torch.int32),
        b.to("cpu"),
        b.cpu(),
        b.to(device, copy=True),
        a.to(b),
        b.to(torch.bfloat16),
        a.to(device=device, dtype=torch.long),
        b.type_as(a.half().to(device)),
        b.to("meta").shape,
        b.bool(),
        b.to(device, non_blocking=True),
        b.view(torch.int32),
        torch.empty_like(b, device="cpu").shape,
        b.contiguous() is b,
    ]


def views_and_versions(device: str) -> Any:
    a = grid(device, 4, 3)
    before = a._version
    a.view(-1)[0] = 1
    bumped = a._version - before
    a.data[0] = 2
    a.detach()[1] = 3
    return a, bumped, a[1]._is_view(), a.is_contiguous(), a.t().is_contiguous(), a.storage_offset()


def random_shapes(device: str) -> Any:
    torch.manual_seed(0)
    a = [
        torch.rand(3, device=device),
        torch.randn(2, 2, device=device),
        torch.randint(5, (4,), device=device),
        torch.randperm(6, device=device).sort().values,
        torch.empty(4, device=device).uniform_(2, 3) > 2,
        F.dropout(torch.ones(50, device=device), 0.5).unique(),
        torch.bernoulli(torch.ones(3, device=device)),
        torch.multinomial(torch.tensor([0.0, 1.0], device=device), 3, replacement=True),
        torch.normal(0.0, 1.0, (2,), device=device),
    ]
    return [x.shape for x in a], a[3], a[4], a[5], a[6], a[7]


def nested_lists(device: str) -> Any:
    a = [grid(device, 2), grid(device, 3)]
    padded = nn.utils.rnn.pad_sequence(a, batch_first=True)
    norms = torch._foreach_norm(a)
    torch._foreach_mul_(a, 2)
    flat = nn.utils.parameters_to_vector([nn.Parameter(x) for x in a])
    return padded, norms, a, flat, torch.utils._pytree.tree_map(lambda t: t + 1, {"x": a})


def use_counts(device: str) -> Any:
    """As activation offloading asks whether somebody else still holds a tensor's storage."""
    a = grid(device, 6)

    def count() -> int:
        return torch._C._storage_Use_Count(a.untyped_storage()._cdata)

    before = count()
    view = a[2:]
    more = count() - before
    del view
    return more, count() - before


SNIPPETS: list[Snippet] = [
    arithmetic, indexing, sorting, shapes, factories, einsum, linear_algebra, in_place, numbers,
    deep_copies, pickles, saved_and_loaded, safe_files, state_dicts, conversions,
    views_and_versions, random_shapes, nested_lists, use_counts,
]  # fmt: skip


@pytest.mark.parametrize("snippet", SNIPPETS, ids=lambda s: s.__name__)
def test_tensors(snippet: Snippet) -> None:
    same_as_on_the_cpu(snippet)


def test_sparse_tensors_are_refused() -> None:
    refused(lambda device: torch.eye(3, device=device).to_sparse(), "sparse")


def test_sparse_factories_are_refused() -> None:
    def snippet(device: str) -> Tensor:
        index = torch.tensor([[0, 1], [0, 1]], device=device)
        return torch.sparse_coo_tensor(index, torch.ones(2, device=device), (2, 2))

    refused(snippet, "sparse")
