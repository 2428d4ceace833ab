"""Autocast: ``torch.autocast("cuda")`` casts what CUDA's autocast casts (ATen/autocast_mode.h).

To C++ the tensors are of PrivateUse1, whose autocast does nothing. Its operators are implemented
here with the policies of AutocastCUDA; the state of "cuda" turns both on. Casts of leaves that
require grad are cached until the outermost autocast block ends, so that a weight used twice is
cast by one kernel (autocast_mode.cpp, cached_cast).
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

import torch

from .gpu import BACKEND
from .patches import Patches
from .tensor import DeviceTensor

aten = torch.ops.aten

LOWER = (
    "_convolution.deprecated", "_convolution", "conv1d", "conv2d", "conv3d", "conv_tbc",
    "conv_transpose1d", "conv_transpose2d.input", "conv_transpose3d.input", "convolution", "prelu",
    "addmm", "addmv", "addr", "matmul", "einsum", "mm", "mv", "linalg_vecdot", "linear", "addbmm",
    "baddbmm", "bmm", "chain_matmul", "linalg_multi_dot", "_thnn_fused_lstm_cell",
    "_thnn_fused_gru_cell", "lstm_cell", "gru_cell", "rnn_tanh_cell", "rnn_relu_cell",
    "_scaled_dot_product_flash_attention", "scaled_dot_product_attention",
)  # fmt: skip
FLOAT32 = (
    "acos", "asin", "cosh", "erfinv", "exp", "expm1", "log", "log10", "log2", "log1p",
    "reciprocal", "rsqrt", "sinh", "tan", "pow.Tensor_Scalar", "pow.Tensor_Tensor", "pow.Scalar",
    "softplus", "layer_norm", "native_layer_norm", "rms_norm", "group_norm", "frobenius_norm.dim",
    "nuclear_norm", "nuclear_norm.dim", "cosine_similarity", "poisson_nll_loss",
    "cosine_embedding_loss", "nll_loss", "nll_loss2d", "hinge_embedding_loss", "kl_div", "l1_loss",
    "smooth_l1_loss", "huber_loss", "mse_loss", "margin_ranking_loss", "multilabel_margin_loss",
    "soft_margin_loss", "triplet_margin_loss", "multi_margin_loss",
    "binary_cross_entropy_with_logits", "dist", "pdist", "cdist", "renorm", "logsumexp",
    "upsample_nearest1d", "_upsample_nearest_exact1d", "upsample_nearest2d",
    "_upsample_nearest_exact2d", "upsample_nearest3d", "_upsample_nearest_exact3d",
    "upsample_linear1d", "upsample_bilinear2d", "_upsample_bilinear2d_aa", "upsample_trilinear3d",
    "upsample_bicubic2d", "_upsample_bicubic2d_aa",
)  # fmt: skip
FLOAT32_RESULT = (
    "prod", "prod.dim_int", "softmax.int", "log_softmax.int", "cumprod", "cumsum",
    "linalg_vector_norm", "linalg_matrix_norm", "linalg_matrix_norm.str_ord", "sum",
    "sum.dim_IntList",
)  # fmt: skip
APPEND_FLOAT32 = {"norm.Scalar": "ScalarOpt_dtype", "norm.ScalarOpt_dim": "ScalarOpt_dim_dtype"}
PROMOTE = (
    "addcdiv", "addcmul", "atan2", "bilinear", "cross", "dot", "vdot", "grid_sampler", "index_put",
    "tensordot", "scatter_add",
)  # fmt: skip

_AUTOCAST = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)  # type: ignore[attr-defined]
_cache: dict[int, tuple[weakref.ref[torch.Tensor], torch.Tensor]] = {}


# -- casts -----------------------------------------------------------------------------------------


def _eligible(value: Any) -> bool:
    return (
        isinstance(value, DeviceTensor)
        and value.is_floating_point()
        and value.dtype is not torch.float64
    )


def _cast(value: Any, dtype: torch.dtype) -> Any:
    """cached_cast: tensors in arguments and lists of them."""
    if isinstance(value, (list, tuple)):
        return type(value)([_cast(v, dtype) for v in value])
    if not _eligible(value) or value.dtype is dtype:
        return value
    if not _cacheable(value, dtype):
        return aten.to.dtype(value, dtype)
    known = _cache.get(id(value))
    if known is None or known[0]() is not value or known[1].dtype is not dtype:
        known = _cache[id(value)] = (weakref.ref(value), aten.to.dtype(value, dtype))
    return known[1]


def _cacheable(value: torch.Tensor, dtype: torch.dtype) -> bool:
    return (
        torch.is_autocast_cache_enabled()
        and value.dtype is torch.float32
        and dtype is torch.get_autocast_dtype("cuda")
        and value.requires_grad
        and value.is_leaf
        and not value._is_view()
    )


def _widest(values: Any, dtype: torch.dtype) -> torch.dtype:
    """float32 if any floating-point tensor among the arguments is, else the lower precision."""
    for value in values:
        if isinstance(value, (list, tuple)):
            dtype = _widest(value, dtype)
        elif _eligible(value) and value.dtype is torch.float32:
            dtype = torch.float32
    return dtype


# -- policies --------------------------------------------------------------------------------------

Kernel = Callable[..., Any]


def _casting(op: Any, choose: Callable[[Any], torch.dtype]) -> Kernel:
    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            dtype = choose([*args, *kwargs.values()])
            return op(*_cast(args, dtype), **{k: _cast(v, dtype) for k, v in kwargs.items()})

    return kernel


def _lower(_: Any) -> torch.dtype:
    return torch.get_autocast_dtype("cuda")


def _float32(_: Any) -> torch.dtype:
    return torch.float32


def _promoted(values: Any) -> torch.dtype:
    return _widest(values, torch.get_autocast_dtype("cuda"))


def _with_dtype(op: Any) -> Kernel:
    """fp32_set_opt_dtype: the input stays as it is, the operator is asked for a float32 result."""
    position = [a.name for a in op._schema.arguments].index("dtype")
    named = op._schema.arguments[position].kwarg_only

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            given = args[position] if len(args) > position else kwargs.get("dtype")
            if given is None and _eligible(args[0]):
                args = args if named else args[:position]
                kwargs = {**kwargs, "dtype": torch.float32}
            return op(*args, **kwargs)

    return kernel


def _appending(op: Any, other: Any) -> Kernel:
    """fp32_append_dtype: ``norm`` has overloads of its own for a result type."""
    names = [a.name for a in op._schema.arguments]
    defaults = [a.default_value for a in op._schema.arguments]

    def kernel(*args: Any, **kwargs: Any) -> Any:
        with torch._C._ExcludeDispatchKeyGuard(_AUTOCAST):
            named = {**dict(zip(names, defaults, strict=True)), **kwargs}
            named.update(zip(names, args, strict=False))
            dtype = torch.float32 if _eligible(args[0]) else args[0].dtype
            return other(*(named[n] for n in names), dtype=dtype)

    return kernel


def _banned(*_: Any, **__: Any) -> Any:
    raise RuntimeError(
        "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
        "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
        "In this case, combine the two layers using "
        "torch.nn.functional.binary_cross_entropy_with_logits\n"
        "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
        "safe to autocast."
    )


# -- registration ----------------------------------------------------------------------------------


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(aten, packet), overload or "default")


def register(library: torch.library.Library, fallback: torch.library.Library) -> None:
    """Implements the operators for AutocastPrivateUse1; once per process. Others pass through."""
    fallback.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")

    def add(name: str, kernel: Kernel) -> None:
        library.impl(name, kernel, "AutocastPrivateUse1")

    for names, choose in ((LOWER, _lower), (FLOAT32, _float32), (PROMOTE, _promoted)):
        for name in names:
            add(name, _casting(_overload(name), choose))
    for name in FLOAT32_RESULT:
        add(name, _with_dtype(_overload(name)))
    for name, overload in APPEND_FLOAT32.items():
        add(name, _appending(_overload(name), getattr(aten.norm, overload)))
    add("binary_cross_entropy", _banned)


def install(patches: Patches) -> None:
    """What is set for "cuda" holds for the backend as well."""
    enable, choose, clear = (
        torch.set_autocast_enabled, torch.set_autocast_dtype, torch.clear_autocast_cache,
    )  # fmt: skip

    def set_autocast_enabled(*args: Any) -> None:
        enable(*args)
        if len(args) == 1 or args[0] == "cuda":
            enable(BACKEND, args[-1])

    def clear_autocast_cache() -> None:
        clear()
        _cache.clear()

    def set_autocast_gpu_dtype(dtype: torch.dtype) -> None:
        choose("cuda", dtype)

    patches.set(torch, "set_autocast_enabled", set_autocast_enabled)
    patches.set(torch, "set_autocast_gpu_dtype", set_autocast_gpu_dtype)
    patches.set(torch, "clear_autocast_cache", clear_autocast_cache)
