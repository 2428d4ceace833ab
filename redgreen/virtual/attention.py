"""Scaled dot product attention: the fused kernel where there is one, as on CUDA.

C++ chooses among the kernels of the devices it knows; for PrivateUse1 it would always take the
plain formula, a chain of operators with other rounding. Here the choice is the CPU's, whose fused
kernel is then one step on the stream, like CUDA's.
"""

from __future__ import annotations

from typing import Any

import torch

from .dispatch import _COMPOSITE, aten, special
from .gpu import GPU
from .unwrapping import unwrap

_sdpa = aten.scaled_dot_product_attention.default
_FLASH = 1  # sdp::SDPBackend::flash_attention


def attention(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor,
    attn_mask: torch.Tensor | None = None, dropout_p: float = 0.0, is_causal: bool = False, *,
    scale: float | None = None, enable_gqa: bool = False,
) -> torch.Tensor:  # fmt: skip
    given = (query, key, value, attn_mask, dropout_p, is_causal)
    rest = {"scale": scale, "enable_gqa": enable_gqa}
    wants_mask_grad = attn_mask is not None and attn_mask.requires_grad
    if wants_mask_grad or aten._fused_sdp_choice.default(*unwrap(given), **rest) != _FLASH:
        made: torch.Tensor = _sdpa._op_dk(_COMPOSITE, *given, **rest)
        return made
    if attn_mask is not None and attn_mask.dtype is torch.bool:  # convert_boolean_attn_mask
        mask = torch.zeros_like(attn_mask, dtype=query.dtype)
        attn_mask = mask.masked_fill_(attn_mask.logical_not(), float("-inf"))
    out: torch.Tensor = aten._scaled_dot_product_flash_attention_for_cpu.default(
        query, key, value, dropout_p, is_causal, attn_mask=attn_mask, scale=scale
    )[0]
    return out


@special(_sdpa)
def _attention(gpu: GPU, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return attention(*args, **kwargs)


def register(library: torch.library.Library) -> None:
    """Also with autograd on, where the choice is made above the dispatch to Python."""
    library.impl("scaled_dot_product_attention", attention, "AutogradPrivateUse1")
