"""TRL's activation offloading, unmodified: a small network trains while the tensors that its
backward needs wait in pinned memory, copied out and back on a stream of their own.
"""

from contextlib import AbstractContextManager, nullcontext

import torch
from trl.models.activation_offloading import OffloadActivations

Result = tuple[torch.Tensor, list[torch.Tensor]]


def _trained(context: AbstractContextManager[object]) -> Result:
    """Losses of two steps, and the weights after them."""
    torch.manual_seed(0)
    layers = (torch.nn.Sequential(torch.nn.Linear(32, 32), torch.nn.GELU()) for _ in range(4))
    network = torch.nn.Sequential(*layers).to("cuda")
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    x = torch.linspace(-1, 1, 8 * 32).reshape(8, 32).to("cuda")
    losses = []
    for _ in range(2):
        with context:
            loss = (network(x) ** 2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.detach())
    return torch.stack(losses).cpu(), [p.detach().cpu() for p in network.parameters()]


def resident() -> Result:
    """The reference: nothing leaves the device."""
    return _trained(nullcontext())


def offloaded() -> Result:
    return _trained(OffloadActivations(use_streams=True, min_offload_size=64, max_fwd_stash_size=2))
