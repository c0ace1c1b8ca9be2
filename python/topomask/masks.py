"""Masks that are given by their entries, their factors or their matrix."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from topomask._ops import Pattern, make_pattern, ops
from topomask.graph import Graph
from topomask.mask import Mask, PatternBuffers


class SparseMask(Mask):
    """Any sparse matrix: a pattern for all heads and learnable values, [heads, nnz] in the pattern's order."""

    def __init__(self, row_ptr: Tensor, col: Tensor, values: Tensor, *, learnable: bool = True) -> None:
        values = torch.as_tensor(values)
        if values.dim() != 2 or values.shape[1] != col.shape[0]:
            raise ValueError(
                f"SparseMask: values must be [H, {col.shape[0]}], as many as the pattern has entries, "
                f"got {list(values.shape)}"
            )
        super().__init__(row_ptr.shape[0] - 1, values.shape[0])
        self.rows = PatternBuffers(make_pattern(row_ptr.cpu(), col.cpu()))
        self.values = nn.Parameter(values.detach().clone(), requires_grad=learnable)
        self.to(values.device)

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        return ops.sparse_matmul(self.values.to(x.dtype), x, self.rows.pattern(), transposed)

    def entries(self) -> list[tuple[Pattern, Tensor]] | None:
        return [(self.rows.pattern(), self.values)]

    def num_entries(self) -> int:
        return self.rows.nnz

    def cost(self) -> tuple[float, float]:
        nnz = float(self.rows.nnz)
        return nnz, 4 * (nnz + self.num_nodes)


class NeighbourMask(SparseMask):
    """M_ij = 1 where j lies within `hops` steps of i along the edges, else 0 (hard, as in GAT)."""

    def __init__(self, graph: Graph, hops: int = 1, *, include_self: bool = True) -> None:
        rows = graph.to("cpu")
        row_ptr, col = ops.neighbour_pattern(rows.row_ptr, rows.col, hops, include_self)
        ones = torch.ones(1, col.shape[0], device=graph.device)
        super().__init__(row_ptr, col, ones, learnable=False)
        del self.values  # nothing is learned: no part of a state dict
        self.register_buffer("values", ones, persistent=False)


class _PlacedMask(Mask):
    """A mask that has no tensors but must know where it is when it is a part of another."""

    def __init__(self, num_nodes: int, heads: int = 1) -> None:
        super().__init__(num_nodes, heads)
        self.register_buffer("place", torch.empty(0), persistent=False)


class NoMask(_PlacedMask):
    """Attention without a mask: all entries 1."""

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        return x.sum(1, keepdim=True).expand_as(x)

    def factors(self) -> tuple[Tensor, Tensor] | None:
        ones = torch.ones(1, self.num_nodes, 1, device=self.device)
        return ones, ones

    def rank(self) -> int:
        return 1

    def cost(self) -> tuple[float, float]:
        return float(self.num_nodes), 8.0 * self.num_nodes


class CausalMask(_PlacedMask):
    """M_ij = 1 for j <= i, as a prefix sum."""

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        return x.flip(1).cumsum(1).flip(1) if transposed else x.cumsum(1)

    def cost(self) -> tuple[float, float]:
        return float(self.num_nodes), 8.0 * self.num_nodes


class LowRankMask(Mask):
    """What masks have in common that implement `factors` and `rank`."""

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        factors = self.factors()
        assert factors is not None
        left, right = (part.to(x.dtype) for part in (reversed(factors) if transposed else factors))
        return left @ (right.transpose(-2, -1) @ x)

    def cost(self) -> tuple[float, float]:
        entries = float(self.num_nodes * self.rank())
        return 2 * entries, 8 * (entries + self.num_nodes)


class DegreeMask(LowRankMask):
    """sin(pi/4 (z(d_i) + z(d_j))) with learnable z = sigmoid(logits), logits [heads, max_degree + 1]; rank 2."""

    def __init__(self, graph: Graph, heads: int = 1, *, max_degree: int | None = None) -> None:
        super().__init__(graph.num_nodes, heads)
        degree = graph.degrees()
        largest = int(degree.max()) if degree.numel() else 0
        last = largest if max_degree is None else max_degree
        self.register_buffer("degree", degree.clamp_max(last), persistent=False)
        # z = (1 + degree) / (2 + degree) at first
        self.logits = nn.Parameter(
            torch.arange(1, last + 2, device=graph.device).log().expand(heads, -1).clone()
        )

    def factors(self) -> tuple[Tensor, Tensor] | None:
        angle = torch.sigmoid(self.logits)[:, self.get_buffer("degree")] * (math.pi / 4)
        sine, cosine = angle.sin(), angle.cos()
        return torch.stack([sine, cosine], -1), torch.stack([cosine, sine], -1)

    def rank(self) -> int:
        return 2


class LearnedFeaturesMask(LowRankMask):
    """M = F F^T with features that are learned freely (an ablation of the paper): `features` [heads, N, rank].

    init: [heads, N, rank]; by default normal numbers with mean and deviation 1 over sqrt(rank), as in the paper.
    """

    def __init__(self, num_nodes: int, rank: int, heads: int = 1, *, init: Tensor | None = None) -> None:
        super().__init__(num_nodes, heads)
        if rank < 1:
            raise ValueError(f"LearnedFeaturesMask: rank must be at least 1, got {rank}")
        if init is None:
            init = (torch.randn(heads, num_nodes, rank) + 1) / math.sqrt(rank)
        if init.shape != (heads, num_nodes, rank):
            raise ValueError(
                f"LearnedFeaturesMask: init must be {[heads, num_nodes, rank]}, got {list(init.shape)}"
            )
        self.features = nn.Parameter(init.detach().clone())

    def factors(self) -> tuple[Tensor, Tensor] | None:
        return self.features, self.features

    def rank(self) -> int:
        return self.features.shape[2]


class DenseMask(Mask):
    """Any matrix, [N, N] or [heads, N, N], learnable if asked for."""

    def __init__(self, matrix: Tensor, *, learnable: bool = False) -> None:
        matrix = torch.as_tensor(matrix)
        if matrix.dim() not in (2, 3) or matrix.shape[-1] != matrix.shape[-2]:
            raise ValueError(f"DenseMask: matrix must be [N, N] or [H, N, N], got {list(matrix.shape)}")
        matrix = matrix if matrix.dim() == 3 else matrix.unsqueeze(0)
        super().__init__(matrix.shape[-1], matrix.shape[0])
        self.matrix = nn.Parameter(matrix.detach().clone(), requires_grad=learnable)

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        return self.matrix.to(dtype)

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        matrix = self.matrix.to(x.dtype)
        return (matrix.transpose(-2, -1) if transposed else matrix) @ x
