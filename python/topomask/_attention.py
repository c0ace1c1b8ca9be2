"""Masked attention: feature maps, three engines, and the choice between them."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Literal

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from topomask._ops import ops
from topomask.graph import signed_seed
from topomask.mask import Mask
from topomask.masks import NoMask

Kind = Literal["linear", "softmax"]
Engine = Literal["auto", "dense", "feature", "mask"]
FeatureMap = Callable[[Tensor], Tensor]

# As in the C++ planner (src/attention/plan.cpp): multiply-adds and bytes a second; only ratios matter.
_DENSE_RATE, _MASK_RATE, _FEATURE_RATE, _FACTOR_RATE = 30e9, 14e9, 3e9, 25e9
_BANDWIDTH = 12e9
_MAX_FACTOR_RANK = 8
_BLOCK_BYTES = 32 << 20


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
    projection = ops.favor_projection(num_features, d, signed_seed(seed)).to(q.dtype)

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
    max_workspace: int = 2**31,
    check_finite: bool = False,
) -> Tensor:
    """Attention under a topological mask M, shaped like torch's scaled_dot_product_attention.

    Linear: (M . phi(Q) phi(K)^T) V over its row sums; softmax: (M . exp(Q K^T / sqrt(d))) V over its row sums.

    Args:
        q, k: [B, H, N, d], or packed [N, H, d]; float32, float64 or bfloat16 (accumulated in float32).
        v: [B, H, N, d_v], or packed [N, H, d_v].
        mask: for N nodes, with 1 or H heads; None is attention without a mask.
        kind: "linear" or "softmax".
        feature_map: phi: "relu" (max(x, 0) + epsilon), "elu1", "squared-relu", "identity", "favor"
            (FAVOR+ with num_features random features of feature_seed), or a function of a tensor.
        engine: "mask" (one pass over the entries of M), "feature" (M times columns, the paper's form), "dense",
            or "auto": the one with the least predicted time.
        normaliser_guard: a row whose sum has at most this magnitude gives 0 and passes no gradient.
        max_workspace: bytes that an engine may allocate beside inputs and output.
        check_finite: raise if q, k or v holds a NaN or an infinity.

    Returns:
        [B, H, N, d_v] or [N, H, d_v], the dtype of v. Differentiable in q, k, v and the mask's parameters.
    """
    for name, x in (("q", q), ("k", k), ("v", v)):
        _check_operand(name, x, q, check_finite)
    if q.shape[-1] != k.shape[-1]:
        raise ValueError(
            f"attention: q and k must have the same number of channels, got {q.shape[-1]} and {k.shape[-1]}"
        )
    if kind not in ("linear", "softmax"):
        raise ValueError(f"kind: unknown value '{kind}', expected linear, softmax")
    packed = q.dim() == 3
    num_nodes, heads = (q.shape[0], q.shape[1]) if packed else (q.shape[2], q.shape[1])
    mask = NoMask(num_nodes) if mask is None else mask
    name = type(mask).__name__
    if mask.num_nodes != num_nodes:
        raise ValueError(f"attention: mask '{name}' is for {mask.num_nodes} nodes, q has {num_nodes}")
    if mask.heads not in (1, heads):
        raise ValueError(f"attention: mask '{name}' has {mask.heads} heads, q has {heads}")
    if v.numel() == 0:
        return v.clone()
    favor = feature_map == "favor"
    phi = feature_map_of(feature_map, epsilon) if isinstance(feature_map, str) and not favor else feature_map

    # Sums over many nodes need more digits than bfloat16 has, so autocast ends here.
    with torch.autocast(q.device.type, enabled=False):
        dtype = torch.float32 if q.dtype == torch.bfloat16 else q.dtype
        queries, keys, values = (
            (x.permute(1, 0, 2).unsqueeze(0) if packed else x).to(dtype) for x in (q, k, v)
        )
        scale = 1.0
        softmax = kind == "softmax"
        if softmax:
            scale = 1 / math.sqrt(q.shape[-1])
        elif favor:
            queries, keys = favor_features(queries, keys, num_features, feature_seed)
        else:
            assert callable(phi)
            queries, keys = phi(queries), phi(keys)
        chosen = choose_engine(mask, queries, values, softmax, engine, max_workspace)
        if chosen == "mask":
            out = _mask_engine(queries, keys, values, mask, softmax, scale, normaliser_guard)
        elif chosen == "feature":
            out = _feature_engine(queries, keys, values, mask, normaliser_guard, max_workspace)
        else:
            out = _dense_engine(queries, keys, values, mask, softmax, scale, normaliser_guard)
        if packed:
            out = out.squeeze(0).permute(1, 0, 2)
        return out.to(v.dtype)


def _check_operand(name: str, x: Tensor, q: Tensor, finite: bool) -> None:
    if x.dim() not in (3, 4):
        raise ValueError(f"attention: {name} must be [B, H, N, d] or packed [N, H, d], got {list(x.shape)}")
    if x.dim() != q.dim():
        raise ValueError(
            f"attention: q and {name} must have the same number of dimensions, got {q.dim()} and {x.dim()}"
        )
    if x.dtype not in (torch.float32, torch.float64, torch.bfloat16):
        raise ValueError(f"attention: {name} must be float32, float64 or bfloat16, got {x.dtype}")
    if x.dtype != q.dtype:
        raise ValueError(f"attention: q and {name} must have one dtype, got {q.dtype} and {x.dtype}")
    if x.device.type != "cpu":
        raise ValueError(f"attention: {name} must be on the cpu, got {x.device}")
    for axis in range(q.dim() - 1):
        if x.shape[axis] != q.shape[axis]:
            raise ValueError(
                f"attention: q and {name} must agree in dimension {axis}, got {q.shape[axis]} and {x.shape[axis]}"
            )
    if finite and not bool(torch.isfinite(x).all()):
        raise ValueError(f"attention: {name} holds a NaN or an infinity")


def choose_engine(
    mask: Mask, q: Tensor, v: Tensor, softmax: bool, engine: Engine, max_workspace: int
) -> Literal["dense", "feature", "mask"]:
    """The engine that was asked for, or the one with the least predicted time that fits the workspace.

    q: features [B, H, N, m], v: [B, H, N, d_v].
    """
    batch, heads, n, m = q.shape
    d_v, element, pairs = v.shape[-1], q.element_size(), batch * heads
    seconds: dict[Literal["dense", "feature", "mask"], float] = {}
    refused: dict[str, str] = {}

    def consider(
        name: Literal["dense", "feature", "mask"], work: float, rate: float, moved: float, workspace: float
    ) -> None:
        if workspace > max_workspace:
            refused[name] = f"needs {workspace:.3g} bytes of workspace, max_workspace is {max_workspace:.3g}"
        else:
            seconds[name] = max(work / rate, moved / _BANDWIDTH)

    moved: float
    total = mask.num_entries()
    if total < 0:
        refused["mask"] = f"mask '{type(mask).__name__}' has no sparse entries"
    else:
        own_patterns = mask.entries_per_head()
        nonzeros = batch * (total if own_patterns else total * heads)
        workspace = total * 16 + (total if own_patterns else total * mask.heads) * 3 * element
        moved = nonzeros * (4 + element) + element * pairs * n * (2 * m + 2 * d_v)
        consider("mask", nonzeros * (m + d_v + 1), _MASK_RATE, moved, workspace)
    rank = mask.rank()
    if softmax:
        refused["feature"] = "softmax scores are not a product of features"
    elif 0 < rank <= _MAX_FACTOR_RANK:
        moved = element * pairs * n * (4 * m * rank + 3 * d_v)
        workspace = element * pairs * n * (2 * m * rank + d_v + 1)
        consider("feature", 2 * pairs * n * m * rank * (d_v + 1), _FACTOR_RATE, moved, workspace)
    else:
        columns = m * (d_v + 1)
        moved = pairs * columns * (3 * mask.cost() * element + 4 * n * element)
        block = _feature_block(q.shape, d_v, element, max_workspace)
        workspace = 6 * element * pairs * n * (d_v + 1) * block
        consider("feature", pairs * columns * (mask.cost() + n), _FEATURE_RATE, moved, workspace)
    moved = element * pairs * n * (2 * m + 2 * d_v) + 3 * element * pairs * n * n
    block_bytes = 4 * element * pairs * n * _dense_rows(q.shape, element)
    consider(
        "dense", pairs * n * n * (m + d_v + 1), _DENSE_RATE, moved, mask.heads * n * n * element + block_bytes
    )
    if engine != "auto":
        if engine not in ("dense", "feature", "mask"):
            raise ValueError(f"engine: unknown value '{engine}', expected auto, dense, feature, mask")
        if engine in refused:
            raise ValueError(f"attention: engine '{engine}' cannot run this: {refused[engine]}")
        return engine
    if not seconds:
        reasons = "; ".join(f"{name}: {reason}" for name, reason in refused.items())
        raise ValueError(f"attention: no engine fits ({reasons})")
    return min(seconds, key=lambda name: seconds[name])


def _feature_block(shape: torch.Size, d_v: int, element: int, max_workspace: int) -> int:
    batch, heads, n, m = shape
    column_bytes = 6 * element * batch * heads * n * (d_v + 1)
    return min(max(max_workspace // max(column_bytes, 1), 1), max(m, 1))


def _dense_rows(shape: torch.Size, element: int) -> int:
    batch, heads, n, _ = shape
    row_bytes = max(1, 4 * element * batch * heads * n)
    return min(max(_BLOCK_BYTES // 2 // row_bytes, 1), max(n, 1))


def _mask_engine(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, softmax: bool, scale: float, guard: float
) -> Tensor:
    entries = mask.entries()
    assert entries is not None
    outs = []
    for head, (pattern, values) in enumerate(entries):
        part = slice(None) if len(entries) == 1 else slice(head, head + 1)
        operands = (q[:, part], k[:, part], v[:, part], values.to(q.dtype))
        learning = torch.is_grad_enabled() and any(x.requires_grad for x in operands)
        outs.append(ops.mask_attention(*operands, pattern, softmax, scale, guard, learning)[0])
    return outs[0] if len(outs) == 1 else torch.cat(outs, 1)


def _divide(sums: Tensor, normaliser: Tensor, guard: float) -> Tensor:
    guarded = normaliser.abs() <= guard
    return sums * normaliser.masked_fill(guarded, 1).reciprocal().masked_fill(guarded, 0)


def _with_ones(v: Tensor) -> Tensor:
    return torch.cat([v, v.new_ones(*v.shape[:-1], 1)], -1)


def _feature_engine(q: Tensor, k: Tensor, v: Tensor, mask: Mask, guard: float, max_workspace: int) -> Tensor:
    v1 = _with_ones(v)
    if 0 < mask.rank() <= _MAX_FACTOR_RANK:
        factors = mask.factors()
        assert factors is not None
        # The rank joins the features.
        left, right = (
            (x.unsqueeze(-1) * factor.to(x.dtype).unsqueeze(-2)).flatten(-2)
            for x, factor in zip((q, k), factors)
        )
        sums = left @ (right.transpose(-2, -1) @ v1)
        return _divide(sums[..., :-1], sums[..., -1:], guard)

    # Nodes first: the mask moves whole rows of columns.
    queries, keys, columns = (x.permute(1, 2, 0, 3) for x in (q, k, v1))  # [H, N, B, .]

    def contribution(some_q: Tensor, some_k: Tensor, all_v: Tensor) -> Tensor:
        heads, n, batch, c = some_q.shape
        outer = (some_k.unsqueeze(-1) * all_v.unsqueeze(-2)).reshape(heads, n, -1)
        moved = mask.multiply(outer).view(heads, n, batch, c, -1)
        return (some_q.unsqueeze(-2) @ moved).squeeze(-2)

    step = _feature_block(q.shape, v.shape[-1], q.element_size(), max_workspace)
    parts = [
        (queries[..., c : c + step], keys[..., c : c + step], columns) for c in range(0, q.shape[-1], step)
    ]
    sums = _sum_of(contribution, parts)
    return _divide(sums[..., :-1], sums[..., -1:], guard).permute(2, 0, 1, 3)


def _sum_of(function: Callable[..., Tensor], parts: Sequence[tuple[Tensor, ...]]) -> Tensor:
    """Blocks are recomputed in the backward pass, or the memory of all of them would be held at once."""
    if len(parts) == 1:
        return function(*parts[0])
    total = _recomputed(function, *parts[0])
    for part in parts[1:]:
        total = total + _recomputed(function, *part)
    return total


def _recomputed(function: Callable[..., Tensor], *inputs: Tensor) -> Tensor:
    if not torch.is_grad_enabled():
        return function(*inputs)
    out = checkpoint(function, *inputs, use_reentrant=False, preserve_rng_state=False)
    assert isinstance(out, Tensor)
    return out


def _dense_engine(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, softmax: bool, scale: float, guard: float
) -> Tensor:
    matrix = mask.dense(q.dtype)

    def rows(some_q: Tensor, some_m: Tensor, all_k: Tensor, all_v: Tensor) -> Tensor:
        scores = some_q @ all_k.transpose(-2, -1)
        if softmax:
            hidden = some_m == 0
            scores = scores * scale
            # The maximum runs over what the mask lets through; it cancels, so it needs no gradient.
            largest = scores.detach().masked_fill(hidden, -math.inf).amax(-1, keepdim=True)
            largest = largest.masked_fill(largest.isinf(), 0)
            scores = (scores - largest).masked_fill(hidden, -math.inf).exp()
        weights = scores * some_m
        return _divide(weights @ all_v, weights.sum(-1, keepdim=True), guard)

    step = _dense_rows(q.shape, q.element_size())
    if step >= q.shape[2]:
        return rows(q, matrix, k, v)
    blocks = [
        _recomputed(rows, q[:, :, i : i + step], matrix[:, i : i + step], k, v)
        for i in range(0, q.shape[2], step)
    ]
    return torch.cat(blocks, 2)
