"""Masked attention: feature maps, and the engines of the library by the choice of its planner."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.checkpoint import checkpoint

from topomask._ops import ops
from topomask.graph import signed_seed
from topomask.mask import Mask
from topomask.masks import NoMask

Kind = Literal["linear", "softmax"]
Engine = Literal["auto", "dense", "feature", "mask"]
FeatureMap = Callable[[Tensor], Tensor]

_MAX_FACTOR_RANK = 8  # masks of a higher rank are multiplied like any other
_CUDA_IS_BUILT: bool = ops.cuda_is_built()


def feature_map_of(name: str, epsilon: float) -> FeatureMap:
    """phi of linear attention by its name."""
    maps: dict[str, FeatureMap] = {
        "identity": lambda x: x,
        "relu": lambda x: x.clamp_min(0) + epsilon,
        "elu1": lambda x: torch.nn.functional.elu(x) + 1,
        "squared-relu": lambda x: x.relu().square() + epsilon,
    }
    if name not in maps:
        raise ValueError(f"feature_map: unknown value '{name}', expected {', '.join(maps)}, favor")
    return maps[name]


def favor_features(q: Tensor, k: Tensor, num_features: int, seed: int) -> tuple[Tensor, Tensor]:
    """Positive orthogonal random features of the softmax kernel (FAVOR+): [..., N, d] -> [..., N, num_features].

    Factors that are common to a query, or to all keys, cancel in the normalised attention, so the largest
    exponent is taken out of each.
    """
    d = q.shape[-1]
    projection = ops.favor_projection(num_features, d, signed_seed(seed), q.dtype, q.device)

    def exponents(x: Tensor) -> Tensor:
        scaled = x * d**-0.25
        return scaled @ projection.T - scaled.square().sum(-1, keepdim=True) / 2

    of_q, of_k = exponents(q), exponents(k)
    of_q = of_q - of_q.detach().amax(-1, keepdim=True)
    of_k = of_k - of_k.detach().amax((-2, -1), keepdim=True)
    return of_q.exp() / math.sqrt(num_features), of_k.exp() / math.sqrt(num_features)


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Mask | None = None,
    *,
    kind: Kind = "linear",
    feature_map: str | FeatureMap = "relu",
    engine: Engine = "auto",
    epsilon: float = 1e-3,
    num_features: int = 64,
    feature_seed: int = 0,
    normaliser_guard: float = 1e-20,
    max_workspace: int | None = None,
    check_finite: bool = False,
) -> Tensor:
    """Attention under a topological mask M, shaped like torch's scaled_dot_product_attention.

    Linear: (M . phi(Q) phi(K)^T) V over its row sums; softmax: (M . exp(Q K^T / sqrt(d))) V over its row sums.

    Args:
        q, k: [B, H, N, d], or packed [N, H, d]; float32, float64, bfloat16 or, on a GPU, float16 (both accumulated
            in float32).
        v: [B, H, N, d_v], or packed [N, H, d_v].
        mask: for N nodes, with 1 or H heads, on the device of q; None is attention without a mask.
        kind: "linear" or "softmax".
        feature_map: phi: "relu" (max(x, 0) + epsilon), "elu1", "squared-relu", "identity", "favor"
            (FAVOR+ with num_features random features of feature_seed), or a function of a tensor.
        engine: "mask" (one pass over the entries of M), "feature" (M times columns, the paper's form), "dense",
            or "auto": the one with the least predicted time (`topomask.plan_attention` tells which).
        normaliser_guard: a row whose sum has at most this magnitude gives 0 and passes no gradient.
        max_workspace: bytes that an engine may allocate beside inputs and output; by default 2 GiB, or four times
            what those take if that is more.
        check_finite: raise if q, k or v holds a NaN or an infinity.

    Returns:
        [B, H, N, d_v] or [N, H, d_v], the dtype of v. Differentiable once in q, k, v and the mask's parameters.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        _check_operand(name, x, q, check_finite)
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"attention: q and k must have the same number of channels, got {q.shape[-1]} and {k.shape[-1]}"
        )
    packed = q.dim() == 3
    mask = _mask_for(mask, q)
    if v.numel() == 0:
        return v.clone()

    workspace = max_workspace or 0  # which is how the operators know the default
    # Sums over many nodes need more digits than 16 bits have, so autocast ends here. The GPU's kernels for the mask and
    # the dense engine read 16-bit numbers and add up in float32 by themselves.
    with torch.autocast(q.device.type, enabled=False):
        wide = _wide(q)
        narrow = q.dtype if q.is_cuda else wide
        queries, keys, values = (
            (x.permute(1, 0, 2).unsqueeze(0) if packed else x).to(narrow) for x in (q, k, v)
        )

        def features() -> tuple[Tensor, Tensor]:
            made = _features(queries.to(wide), keys.to(wide), feature_map, epsilon, num_features, feature_seed)
            return made[0].to(narrow), made[1].to(narrow)  # rounded once

        scores = "softmax" if kind == "softmax" else "features"
        if scores == "features" and feature_map != "relu":
            queries, keys = features()
        chosen, block, _ = _plan(mask, queries, values, kind, engine, workspace)
        if scores == "features" and feature_map == "relu":
            if chosen == "feature":
                queries, keys = features()
            else:
                scores = "relu"  # made on the way, by the kernels where they can
        if chosen == "mask":
            out = _mask_engine(queries, keys, values, mask, scores, epsilon, normaliser_guard)
        elif chosen == "dense":
            matrix = mask.dense(wide)
            out = ops.dense_attention(
                queries, keys, values, matrix, scores, epsilon, normaliser_guard, workspace
            )
        else:
            queries, keys, values = (x.to(wide) for x in (queries, keys, values))
            out = _feature_engine(queries, keys, values, mask, block, normaliser_guard, workspace)
        if packed:
            out = out.squeeze(0).permute(1, 0, 2)
        return out.to(v.dtype)


def plan_attention(
    q: Tensor,
    v: Tensor,
    mask: Mask | None = None,
    *,
    kind: Kind = "linear",
    engine: Engine = "auto",
    num_features: int | None = None,
    max_workspace: int | None = None,
) -> str:
    """Which engine `attention` would take and why, as a table: multiply-adds, bytes, workspace, predicted seconds.

    q, v: as in `attention`; only their shapes matter. num_features: what the feature map makes of d channels, where
    that is not d.
    """
    mask = _mask_for(mask, q)
    q, v = (x.permute(1, 0, 2).unsqueeze(0) if x.dim() == 3 else x for x in (q, v))
    features = q if num_features is None else q[..., :1].expand(*q.shape[:-1], num_features)
    return _plan(mask, features, v, kind, engine, max_workspace or 0)[2]


def _mask_for(mask: Mask | None, q: Tensor) -> Mask:
    num_nodes, heads = (q.shape[0], q.shape[1]) if q.dim() == 3 else (q.shape[2], q.shape[1])
    mask = NoMask(num_nodes).to(q.device) if mask is None else mask
    name = type(mask).__name__
    if mask.num_nodes != num_nodes:
        raise ValueError(f"attention: mask '{name}' is for {mask.num_nodes} nodes, q has {num_nodes}")
    if mask.heads not in (1, heads):
        raise ValueError(f"attention: mask '{name}' has {mask.heads} heads, q has {heads}")
    if mask.device not in (None, q.device):
        raise ValueError(
            f"attention: mask '{name}' is on {mask.device}, q is on {q.device}: move it with mask.to(q.device)"
        )
    return mask


def _check_operand(name: str, x: Tensor, q: Tensor, finite: bool) -> None:
    if x.dim() not in (3, 4):
        raise ValueError(f"attention: {name} must be [B, H, N, d] or packed [N, H, d], got {list(x.shape)}")
    if x.dim() != q.dim():
        raise ValueError(
            f"attention: q and {name} must have the same number of dimensions, got {q.dim()} and {x.dim()}"
        )
    if x.is_cuda and not _CUDA_IS_BUILT:
        raise ValueError(f"attention: {name} is on {x.device}, but this topomask was built without CUDA")
    if x.dtype not in (torch.float32, torch.float64, torch.bfloat16) and not (
        x.is_cuda and x.dtype == torch.float16
    ):
        raise ValueError(
            f"attention: {name} must be float32, float64, bfloat16 or, on a GPU, float16, got {x.dtype} on {x.device}"
        )
    if x.dtype != q.dtype:
        raise ValueError(f"attention: q and {name} must have one dtype, got {q.dtype} and {x.dtype}")
    if x.device != q.device:
        raise ValueError(f"attention: q and {name} must be on one device, got {q.device} and {x.device}")
    for axis in range(q.dim() - 1):
        if x.shape[axis] != q.shape[axis]:
            raise ValueError(
                f"attention: q and {name} must agree in dimension {axis}, got {q.shape[axis]} and {x.shape[axis]}"
            )
    if finite and not bool(torch.isfinite(x).all()):
        raise ValueError(f"attention: {name} holds a NaN or an infinity")


def _features(
    q: Tensor, k: Tensor, feature_map: str | FeatureMap, epsilon: float, num_features: int, seed: int
) -> tuple[Tensor, Tensor]:
    if feature_map == "favor":
        return favor_features(q, k, num_features, seed)
    phi = feature_map_of(feature_map, epsilon) if isinstance(feature_map, str) else feature_map
    return phi(q), phi(k)


def _plan_now(
    name: str,
    mask: list[int],
    cost: list[float],
    shape: list[int],
    dtype: torch.dtype,
    device: torch.device,
    kind: str,
    engine: str,
    max_workspace: int,
) -> tuple[str, int, str]:
    # The planner counts; there is nothing to trace in it.
    with _disable_current_modes():
        return ops.plan_attention(name, mask, cost, shape, dtype, device, kind, engine, max_workspace)


_planned: Callable[..., tuple[str, int, str]] = torch.compiler.assume_constant_result(_plan_now)


def _plan(
    mask: Mask, q: Tensor, v: Tensor, kind: Kind, engine: Engine, max_workspace: int
) -> tuple[str, int, str]:
    """The engine, the features that it sends through the mask at a time, and the plan as text."""
    # All engines take proportionally longer for more batch entries: while tracing, the plan for one serves them all.
    batch = 1 if torch.compiler.is_compiling() else q.shape[0]
    counts = [mask.num_nodes, mask.heads, mask.num_entries(), int(mask.entries_per_head()), mask.rank()]
    shape = [batch, _constant(q.shape[1]), _constant(q.shape[3]), _constant(v.shape[3])]
    return _planned(
        type(mask).__name__, counts, list(mask.cost()), shape, q.dtype, q.device, kind, engine, max_workspace
    )  # fmt: skip


def _constant(size: int) -> int:
    """The number itself, where a tracer has put a symbol for it."""
    return len(range(size))


def _wide(q: Tensor) -> torch.dtype:
    """What sums are added up in."""
    return torch.float64 if q.dtype == torch.float64 else torch.float32


def _mask_engine(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, scores: str, epsilon: float, guard: float
) -> Tensor:
    entries = mask.entries()
    assert entries is not None
    outs = []
    for head, (pattern, values) in enumerate(entries):
        part = slice(None) if len(entries) == 1 else slice(head, head + 1)
        outs.append(
            ops.mask_attention(
                q[:, part], k[:, part], v[:, part], values.to(_wide(q)), pattern, scores, epsilon, guard
            )
        )
    return outs[0] if len(outs) == 1 else torch.cat(outs, 1)


def _feature_engine(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, block: int, guard: float, max_workspace: int
) -> Tensor:
    if 0 < mask.rank() <= _MAX_FACTOR_RANK:
        return _attend_factors(q, k, v, mask, guard)
    sparse = mask.sparse_factors()
    if sparse is None:
        return _attend_columns(q, k, v, mask, block, guard)
    outs = []
    for head, ((left, left_values), (right, right_values)) in enumerate(sparse):
        part = slice(None) if len(sparse) == 1 else slice(head, head + 1)
        outs.append(
            ops.feature_attention(
                q[:, part], k[:, part], v[:, part], left_values.to(q.dtype), right_values.to(q.dtype), left, right,
                guard, max_workspace,
            )
        )  # fmt: skip
    return outs[0] if len(outs) == 1 else torch.cat(outs, 1)


def _divide(sums: Tensor, guard: float) -> Tensor:
    numerator, normaliser = sums[..., :-1], sums[..., -1:]
    guarded = normaliser.abs() <= guard
    return numerator * normaliser.masked_fill(guarded, 1).reciprocal().masked_fill(guarded, 0)


def _with_ones(v: Tensor) -> Tensor:
    return torch.cat([v, v.new_ones(*v.shape[:-1], 1)], -1)


def _attend_factors(q: Tensor, k: Tensor, v: Tensor, mask: Mask, guard: float) -> Tensor:
    """M = left right^T of low rank: the rank joins the features, and there are two matrix products."""
    factors = mask.factors()
    assert factors is not None
    left, right = (
        (x.unsqueeze(-1) * factor.to(x).unsqueeze(-2)).flatten(-2) for x, factor in zip((q, k), factors)
    )
    return _divide(left @ (right.transpose(-2, -1) @ _with_ones(v)), guard)


def _attend_columns(q: Tensor, k: Tensor, v: Tensor, mask: Mask, block: int, guard: float) -> Tensor:
    """M known by its products alone: `block` features c at a time, sum_c q_c * M (k_c * [v|1])."""
    # Nodes first: the mask moves whole rows of columns.
    queries, keys, columns = (x.permute(1, 2, 0, 3) for x in (q, k, _with_ones(v)))  # [H, N, B, .]

    def contribution(some_q: Tensor, some_k: Tensor, all_v: Tensor) -> Tensor:
        heads, n, batch, c = some_q.shape
        outer = (some_k.unsqueeze(-1) * all_v.unsqueeze(-2)).reshape(heads, n, -1)
        moved = mask.multiply(outer).view(heads, n, batch, c, -1)
        return (some_q.unsqueeze(-1) * moved).sum(-2)

    parts = [
        (queries[..., c : c + block], keys[..., c : c + block], columns)
        for c in range(0, q.shape[-1], block)
    ]
    return _divide(_sum_of(contribution, parts), guard).permute(2, 0, 1, 3)


def _sum_of(function: Callable[..., Tensor], parts: Sequence[tuple[Tensor, ...]]) -> Tensor:
    """Blocks are recomputed in the backward pass, or the memory of all of them would be held at once."""
    if len(parts) == 1 or not torch.is_grad_enabled():
        return sum((function(*part) for part in parts[1:]), function(*parts[0]))
    total = None
    for part in parts:
        out = checkpoint(function, *part, use_reentrant=False, preserve_rng_state=False)
        assert isinstance(out, Tensor)
        total = out if total is None else total + out
    assert total is not None
    return total
