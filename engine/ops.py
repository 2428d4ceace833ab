"""Every operator of the models, in plain torch, so that kernels can replace them one by one.

Shapes: T tokens, R rows (requests), Q tokens per row, H hidden size. Where a function is used in a
decode graph its shapes depend on its arguments' shapes only, and nothing waits for the device.
"""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor

CHUNK = 64  # tokens per chunk of the gated delta rule's parallel form
STEPWISE = 4  # so few tokens of the gated delta rule go one by one
EXPERT_TOKENS = 32  # tokens whose experts' weights are gathered at once: bounds the memory


# -- norms ----------------------------------------------------------------------------------------


def rms_norm(x: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Zero-centred RMS norm over the last dimension: x / rms(x) * (1 + weight), in float32."""
    x32 = x.float()
    scale = torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps)
    return (x32 * scale * (1.0 + weight.float())).type_as(x)


def gated_rms_norm(x: Tensor, gate: Tensor, weight: Tensor, eps: float) -> Tensor:
    """Plain RMS norm over the last dimension times silu(gate); the norm comes before the gate."""
    x32 = x.float()
    normed = x32 * torch.rsqrt(x32.pow(2).mean(-1, keepdim=True) + eps)
    return (weight * normed.type_as(x) * F.silu(gate.float())).type_as(x)


def l2_norm(x: Tensor) -> Tensor:
    """x / sqrt(sum of squares + 1e-6) over the last dimension."""
    return x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)


# -- feed-forward ---------------------------------------------------------------------------------


def swiglu(x: Tensor, gate: Tensor, up: Tensor, down: Tensor) -> Tensor:
    """[T, H] -> [T, H] through weights gate, up [I, H] and down [H, I]."""
    return F.linear(F.silu(F.linear(x, gate)) * F.linear(x, up), down)


def route(x: Tensor, router: Tensor, experts_per_token: int) -> tuple[Tensor, Tensor]:
    """Experts (int64) and their weights, both [T, k], weights adding up to 1.

    The sort is stable, so of equal probabilities the lower index wins.
    """
    probabilities = F.softmax(F.linear(x, router), dim=-1, dtype=torch.float32)
    ordered, experts = torch.sort(probabilities, dim=-1, descending=True, stable=True)
    top = ordered[:, :experts_per_token]
    weights = top / top.sum(-1, keepdim=True)
    return experts[:, :experts_per_token], weights.to(x.dtype)


def mix_experts(
    x: Tensor, gate_up: Tensor, down: Tensor, experts: Tensor, weights: Tensor
) -> Tensor:
    """[T, H] through k experts each: gate_up [E, 2I, H], down [E, H, I], experts, weights [T, k].

    Gathers the weights of each token's experts, so that shapes do not depend on who is chosen.
    """
    parts = zip(*(t.split(EXPERT_TOKENS) for t in (x, experts, weights)), strict=True)
    mixed = [_mix(some, gate_up, down, chosen, shares) for some, chosen, shares in parts]
    return mixed[0] if len(mixed) == 1 else torch.cat(mixed)


def _mix(x: Tensor, gate_up: Tensor, down: Tensor, experts: Tensor, weights: Tensor) -> Tensor:
    gate, up = (gate_up[experts] @ x[:, None, :, None]).squeeze(-1).chunk(2, dim=-1)
    out = (down[experts] @ (F.silu(gate) * up)[..., None]).squeeze(-1)
    return (out.float() * weights.float()[..., None]).sum(1).to(x.dtype)


# -- full attention -------------------------------------------------------------------------------


def rotary_frequencies(rotary_dim: int, theta: float, device: torch.device) -> Tensor:
    """Inverse frequencies, float32 [rotary_dim / 2]."""
    exponents = torch.arange(0, rotary_dim, 2, dtype=torch.float32) / rotary_dim
    return (1.0 / theta**exponents).to(device)


def rotary_tables(
    positions: Tensor, frequencies: Tensor, dtype: torch.dtype
) -> tuple[Tensor, Tensor]:
    """Cosines and sines [T, 1, rotary_dim / 2] of integer positions [T]."""
    angles = (positions.float()[:, None] * frequencies)[:, None, :]
    return angles.cos().to(dtype), angles.sin().to(dtype)


def rotate(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotates the first dimensions of each head of x [T, heads, D], in halves; the rest passes."""
    half = cos.shape[-1]
    first, second, rest = x.split([half, half, x.shape[-1] - 2 * half], dim=-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1)


def real_index(index: Tensor, null: int) -> Tensor:
    """int64 indices in which -1, the mark of padding, is ``null``."""
    return torch.where(index < 0, null, index).long()


def store_kv(cache: Tensor, slots: Tensor, key: Tensor, value: Tensor) -> None:
    """Writes key and value [T, Hkv, D] to rows ``slots`` [T] of [2, blocks, block, Hkv, D]."""
    keys, values = cache.flatten(1, 2)
    keys.index_copy_(0, slots, key)
    values.index_copy_(0, slots, value)


def visible(seq_lens: Tensor, query_length: int, context: int) -> Tensor:
    """Which of ``context`` positions each query may see: bool [R, 1, Q, context].

    A row's queries are its last ``query_length`` tokens; ``seq_lens`` [R] counts them.
    """
    device = seq_lens.device
    behind = torch.arange(query_length - 1, -1, -1, device=device)
    seen = seq_lens[:, None] - behind
    return torch.arange(context, device=device) < seen[:, None, :, None]


def paged_attention(query: Tensor, cache: Tensor, block_table: Tensor, mask: Tensor) -> Tensor:
    """query [R, Q, Hq, D] over pages block_table [R, cols], masked by [R, 1, Q, cols * block]."""
    rows, dim = query.shape[0], query.shape[-1]
    pages = cache.index_select(1, block_table.flatten())
    keys, values = pages.view(2, rows, -1, cache.shape[-2], dim)
    return _attend(query, keys, values, mask)


def _attend(query: Tensor, keys: Tensor, values: Tensor, mask: Tensor) -> Tensor:
    """query [R, Q, Hq, D], keys and values [R, L, Hkv, D], mask broadcastable to [R, Hq, Q, L]."""
    groups = query.shape[2] // keys.shape[2]
    queries = query.transpose(1, 2)
    keys = keys.transpose(1, 2).repeat_interleave(groups, dim=1, output_size=queries.shape[1])
    values = values.transpose(1, 2).repeat_interleave(groups, dim=1, output_size=queries.shape[1])
    scores = queries @ keys.transpose(2, 3) * query.shape[-1] ** -0.5
    # Finite, so that a row that sees nothing (inert or poisoned) gives numbers, not NaN.
    scores = scores.float().masked_fill(~mask, torch.finfo(torch.float32).min)
    weights = scores.softmax(-1).to(query.dtype)
    attended: Tensor = weights @ values
    return attended.transpose(1, 2)


# -- gated delta net ------------------------------------------------------------------------------


def causal_conv(x: Tensor, window: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    """Depthwise causal convolution and SiLU of x [R, Q, C]; weight [C, K].

    ``window`` [R, C, K - 1] has the raw inputs before x; the second result is the next window.
    """
    inputs = torch.cat((window, x.transpose(1, 2)), dim=-1)
    taps = weight.shape[-1]
    out = (inputs.unfold(-1, taps, 1).float() * weight.float()[:, None, :]).sum(-1)
    return F.silu(out.to(x.dtype)).transpose(1, 2), inputs[..., 1 - taps :]


def delta_gates(b: Tensor, a: Tensor, a_log: Tensor, dt_bias: Tensor) -> tuple[Tensor, Tensor]:
    """Write strength and log decay, float32, of projections b and a."""
    decay = -a_log.float().exp() * F.softplus(a.float() + dt_bias)
    return b.sigmoid().float(), decay


def delta_heads(query: Tensor, key: Tensor, value_heads: int) -> tuple[Tensor, Tensor]:
    """Normalized float32 queries and keys [..., Hv, Dk] of [..., Hk, Dk]; queries also scaled."""
    ratio = value_heads // query.shape[-2]
    query = l2_norm(query.float()) * query.shape[-1] ** -0.5
    key = l2_norm(key.float())
    if ratio == 1:
        return query, key
    return (
        query.repeat_interleave(ratio, dim=-2, output_size=value_heads),
        key.repeat_interleave(ratio, dim=-2, output_size=value_heads),
    )


def delta_step(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """One token of the gated delta rule, in float32.

    query, key [R, Hv, Dk], value [R, Hv, Dv], decay and beta [R, Hv], state [R, Hv, Dv, Dk];
    returns the output [R, Hv, Dv] and the next state.
    """
    state = state * decay.exp()[..., None, None]
    written = (value - (state @ key[..., None]).squeeze(-1)) * beta[..., None]
    state = state + written[..., None] * key[..., None, :]
    return (state @ query[..., None]).squeeze(-1), state


def delta_steps(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """`delta_step` for Q tokens in turn: arguments have a dimension Q after R."""
    outputs = []
    for q, k, v, g, b in zip(*(x.unbind(1) for x in (query, key, value, decay, beta)), strict=True):
        out, state = delta_step(q, k, v, g, b, state)
        outputs.append(out)
    return torch.stack(outputs, dim=1), state


def delta_chunks(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The same recurrence for one long row, `CHUNK` tokens at a time (WY form).

    query, key [n, Hv, Dk], value [n, Hv, Dv], decay and beta [n, Hv], state [Hv, Dv, Dk].
    """
    heads_first = [x.transpose(0, 1).split(CHUNK, dim=1) for x in (query, key, value, decay, beta)]
    outputs = []
    for q, k, v, g, b in zip(*heads_first, strict=True):
        out, state = _delta_chunk(q, k, v, g, b, state)
        outputs.append(out)
    return torch.cat(outputs, dim=1).transpose(0, 1), state


def _delta_chunk(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """One chunk, heads first. What token i writes depends on what tokens j < i wrote.

    With G the running sum of decays, w_i = beta_i (v_i - e^{G_i} S k_i - sum_j e^{G_i - G_j}
    (k_j k_i) w_j), a unit lower triangular system.
    """
    total = decay.cumsum(-1)
    between = (total[..., :, None] - total[..., None, :]).tril()
    between = between.exp().tril()
    kept = total.exp()[..., None]
    known = (value - kept * (key @ state.transpose(1, 2))) * beta[..., None]
    system = (key @ key.transpose(1, 2) * between * beta[..., None]).tril(-1)
    written = torch.linalg.solve_triangular(system, known, upper=False, unitriangular=True)
    out = kept * (query @ state.transpose(1, 2))
    out = out + (query @ key.transpose(1, 2) * between) @ written
    left = (total[..., -1:] - total).exp()[..., None]
    state = state * total[..., -1].exp()[..., None, None]
    return out, state + written.transpose(1, 2) @ (key * left)


def delta_rule(
    query: Tensor, key: Tensor, value: Tensor, decay: Tensor, beta: Tensor, state: Tensor
) -> tuple[Tensor, Tensor]:
    """The recurrence for R rows of Q tokens: step by step if they are few, in chunks otherwise.

    query, key [R, Q, Hv, Dk], value [R, Q, Hv, Dv], decay and beta [R, Q, Hv],
    state [R, Hv, Dv, Dk]; returns the output [R, Q, Hv, Dv] and the next state.
    """
    if query.shape[1] <= STEPWISE:
        return delta_steps(query, key, value, decay, beta, state)
    rows = [delta_chunks(*row) for row in zip(query, key, value, decay, beta, state, strict=True)]
    return torch.stack([out for out, _ in rows]), torch.stack([last for _, last in rows])
