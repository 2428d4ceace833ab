"""A DataLoader that pins its batches, and asynchronous uploads of them: right without any edge."""

import torch
from torch.utils.data import DataLoader, TensorDataset

N = 8
ITEMS = 6


def right() -> torch.Tensor:
    return torch.stack([torch.full((N,), float(i)) for i in range(ITEMS)])


def pinned() -> torch.Tensor:
    data = torch.stack([torch.full((N,), float(i)) for i in range(ITEMS)])
    loader = DataLoader(TensorDataset(data), batch_size=2, pin_memory=True)
    out = torch.empty(ITEMS, N, device="cuda")
    for i, (host,) in enumerate(loader):
        batch = host.to("cuda", non_blocking=True)
        out[2 * i : 2 * i + 2].copy_(batch)
    return out
