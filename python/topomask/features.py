"""Graph random features: sampled once per graph, modulated by f as often as f changes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from torch import Tensor

from topomask._ops import ops
from topomask.graph import Graph, signed_seed


@dataclass(frozen=True, eq=False)
class WalkFeatures:
    """One entry per (start node, visited node), one deposit per (start node, visited node, hop)."""

    row_ptr: Tensor
    """[N+1] int64"""
    col: Tensor
    """[nnz] int32, ascending within a row"""
    deposit_ptr: Tensor
    """[nnz+1] int64"""
    hop: Tensor
    """[deposits] int16"""
    load: Tensor
    """[deposits] float32: mean over the walks of the importance weight"""

    def values(self, f: Tensor) -> Tensor:
        """The sum of load * f[hop]: f [F] or [heads, F] -> [nnz] or [heads, nnz]; differentiable."""
        values = ops.modulate(f[None] if f.dim() == 1 else f, self.deposit_ptr, self.hop, self.load)
        return values[0] if f.dim() == 1 else values


def sample_walk_features(
    graph: Graph,
    num_walks: int = 16,
    max_hops: int = 10,
    p_halt: float = 0.5,
    *,
    length: Literal["geometric", "fixed"] | Sequence[float] = "geometric",
    step: str = "uniform",
    coupling: str = "independent",
    importance_weights: bool = True,
    seed: int = 0,
    ensemble: int = 0,
) -> WalkFeatures:
    """Features of every node of W = graph; the same on every machine."""
    law = length if isinstance(length, str) else "survival"
    survival = [] if isinstance(length, str) else [float(s) for s in length]
    features = ops.sample_features(
        graph.row_ptr, graph.col, graph.weight, num_walks, max_hops, law, p_halt, survival, step, coupling,
        importance_weights, signed_seed(seed), ensemble,
    )  # fmt: skip
    return WalkFeatures(*features)
