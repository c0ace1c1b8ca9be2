"""Masked attention: one call of the library."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from topomask._catalogue import settings_text
from topomask._ops import USUAL, check_types, ops
from topomask.graph import Graph, signed_seed
from topomask.mask import Mask

FeatureMap = Callable[[Tensor], Tensor]


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask | None = None, *, kind: str = USUAL.kind,
    feature_map: str | FeatureMap = USUAL.feature_map, engine: str = USUAL.engine, epsilon: float | None = None,
    num_features: int | None = None, feature_seed: int = USUAL.feature_seed, normaliser_guard: float | None = None,
    max_workspace: int | None = None, check_finite: bool = USUAL.check_finite,
    csr: tuple[Tensor, Tensor] | None = None, weight: Tensor | None = None, bias: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """Attention under a topological mask M, between N nodes that are queries and keys at once.

    Linear: (M . phi(Q) phi(K)^T) V, softmax: (M . exp(Q K^T / sqrt(d))) V, each over its row sums.

    Args:
        q, k: [B, H, N, d], or packed [N, H, d]; float32, float64, bfloat16 or, on a GPU, float16 (both
            accumulated in float32).
        v: [B, H, N, d_v], or packed [N, H, d_v].
        mask: for N nodes, with 1 or H heads, on the device of q; None is attention without a mask.
        kind: "linear" or "softmax".
        feature_map: phi: "relu" (max(x, 0) + epsilon), "elu1", "squared-relu", "identity", "favor"
            (FAVOR+ with num_features random features of feature_seed), or a function of a tensor.
        engine: "mask" (one pass over the entries of M), "feature" (products of M with columns, as in the
            paper), "dense", or "auto": the engine with the least predicted time (`plan_attention` tells which).
        epsilon: of "relu" and "squared-relu" (1e-3).
        num_features: of "favor" (64).
        normaliser_guard: a row whose sum has at most this magnitude gives 0 and passes no gradient (1e-20).
        max_workspace: bytes that an engine may allocate beside inputs and output; by default three quarters
            of what is free on a GPU; elsewhere 2 GiB, or four times inputs and output if that is more.
        check_finite: raise if q, k or v holds a NaN or an infinity.
        csr: instead of a mask: row_ptr [N+1] and col [E] of a pattern; node i attends to its row alone. Columns
            are from 0 to N-1 and ascend within a row. On a GPU the host waits to check their range, unless the
            call is compiled or captured; their order is checked on a CPU alone.
        weight: of the pattern's entries, [E] or [H, E]: they multiply the scores; 1 by default.
        bias: of the pattern's entries, [E] or [H, E]: it is added to the logits of softmax.

    Returns:
        [B, H, N, d_v] or [N, H, d_v], the dtype of v. Differentiable once in q, k, v, weight, bias and the
        mask's parameters.
    """
    check_types("attention", Tensor, q=q, k=k, v=v)
    if callable(feature_map):
        q, k, feature_map = feature_map(q), feature_map(k), "identity"
    check_types("attention", str, kind=kind, feature_map=feature_map, engine=engine)
    check_types("attention", int, feature_seed=feature_seed)
    check_types("attention", int, optional=True, num_features=num_features, max_workspace=max_workspace)
    check_types("attention", float, optional=True, epsilon=epsilon, normaliser_guard=normaliser_guard)
    features = (feature_map, engine, epsilon, num_features, signed_seed(feature_seed))
    options = (kind, *features, normaliser_guard, max_workspace, check_finite)
    if csr is not None:
        if mask is not None:
            raise ValueError("attention: mask and csr are two ways to say the same, expected one of them")
        return ops.csr_attention(q, k, v, *csr, weight, bias, *options)
    if weight is not None or bias is not None:
        raise ValueError("attention: weight and bias belong to a pattern given as csr=(row_ptr, col)")
    recipe, constants, parameters = _expression(mask, kind, engine)
    if recipe is None:
        assert mask is not None
        return _attend_columns(q, k, v, mask, feature_map, options)
    return ops.attention.default(q, k, v, recipe, constants, parameters, *options)


def plan_attention(
    q: Tensor, v: Tensor, mask: Mask | None = None, *, kind: str = USUAL.kind, feature_map: str = USUAL.feature_map,
    engine: str = USUAL.engine, num_features: int | None = None, max_workspace: int | None = None,
) -> str:  # fmt: skip
    """Which engine `attention` would choose and why: a table of costs. Of q and v only the shapes matter."""
    check_types("plan_attention", Tensor, q=q, v=v)
    check_types("plan_attention", str, kind=kind, feature_map=feature_map, engine=engine)
    check_types("plan_attention", int, optional=True, num_features=num_features, max_workspace=max_workspace)
    recipe, _, parameters = _expression(mask, kind, engine)
    if recipe is None:
        return f"engine: feature ({type(mask).__name__} can only multiply)\n"
    learning = torch.is_grad_enabled() and any(p.requires_grad for p in parameters)
    return ops.plan_attention(q, v, recipe, kind, feature_map, engine, num_features, max_workspace, learning)


def plan_ensembles(
    graph: Graph, error: float | None = None, kernel: str = "", p_halt: float | None = None,
    max_hops: int | None = None, *, normalise: str = USUAL.normalise, confidence: float | None = None,
    m: int | None = None, d: int | None = None, **walks: Any,
) -> str:  # fmt: skip
    """Shared, independent and asymmetric walks at equal error on this graph: nonzeros, seconds, errors."""
    w = graph.to("cpu").normalised(normalise)
    settings = settings_text({"p_halt": p_halt, "max_hops": max_hops, **walks})
    return ops.plan_ensembles(*w.rows, w.directed, kernel, settings, error, confidence, m, d)


def _expression(mask: Mask | None, kind: str, engine: str) -> tuple[str | None, list[Tensor], list[Tensor]]:
    if mask is None:
        return "", [], []
    if not isinstance(mask, Mask):
        raise TypeError(
            f"attention: mask must be a topomask.Mask, got {type(mask).__name__}; topomask.DenseMask(matrix) "
            "makes one of a matrix"
        )
    # A user-defined mask that can only multiply serves linear attention; other kinds need the matrix.
    needs_matrix = kind == "softmax" or engine not in ("auto", "feature")
    expression = mask._written_out() if needs_matrix else mask._expression()
    return (None, [], []) if expression is None else expression


def _attend_columns(
    q: Tensor, k: Tensor, v: Tensor, mask: Mask, feature_map: str, options: tuple[Any, ...]
) -> Tensor:
    """For a user-defined mask that can only multiply: M (phi(k)_c [v|1]) for a few features c at a time."""
    _, _, _, epsilon, num_features, seed, guard, max_workspace, _ = options
    queries, keys, values, block = ops.column_operands(
        q, k, v, mask.num_nodes, mask.heads, feature_map, epsilon, num_features, seed, max_workspace
    )
    heads, n, batch, channels = values.shape

    def contribution(some_q: Tensor, some_k: Tensor) -> Tensor:
        columns = (some_k.unsqueeze(-1) * values.unsqueeze(-2)).reshape(heads, n, -1)
        moved = mask.multiply(columns).view(heads, n, batch, -1, channels)
        return (some_q.unsqueeze(-1) * moved).sum(-2)

    total = torch.zeros_like(values)
    for some in zip(queries.split(block, -1), keys.split(block, -1), strict=True):
        # Run again in the backward pass, or the memory of all blocks would be held at once.
        total = total + checkpoint(contribution, *some, use_reentrant=False, preserve_rng_state=False)
    return ops.column_result(total, v, guard)
