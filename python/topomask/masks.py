"""The masks that need no random walks, and masks made of masks."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

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
        self.rows = PatternBuffers(make_pattern(row_ptr, col))
        self.values = nn.Parameter(values.detach().clone(), requires_grad=learnable)

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        return ops.sparse_matmul(self.values.to(x.dtype), x, self.rows.pattern(), transposed)

    def entries(self) -> list[tuple[Pattern, Tensor]] | None:
        return [(self.rows.pattern(), self.values)]

    def num_entries(self) -> int:
        return self.rows.nnz

    def cost(self) -> float:
        return float(self.rows.nnz)


class NeighbourMask(SparseMask):
    """M_ij = 1 where j lies within `hops` steps of i along the edges, else 0 (hard, as in GAT)."""

    def __init__(self, graph: Graph, hops: int = 1, *, include_self: bool = True) -> None:
        row_ptr, col = ops.neighbour_pattern(graph.row_ptr, graph.col, hops, include_self)
        super().__init__(row_ptr, col, torch.ones(1, col.shape[0]), learnable=False)


class NoMask(Mask):
    """Attention without a mask: all entries 1."""

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        return x.sum(1, keepdim=True).expand_as(x)

    def factors(self) -> tuple[Tensor, Tensor] | None:
        ones = torch.ones(1, self.num_nodes, 1)
        return ones, ones

    def rank(self) -> int:
        return 1

    def cost(self) -> float:
        return float(self.num_nodes)


class CausalMask(Mask):
    """M_ij = 1 for j <= i, as a prefix sum."""

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        return x.flip(1).cumsum(1).flip(1) if transposed else x.cumsum(1)

    def cost(self) -> float:
        return float(self.num_nodes)


class DegreeMask(Mask):
    """sin(pi/4 (z(d_i) + z(d_j))) with learnable z = sigmoid(logits), logits [heads, max_degree + 1]; rank 2."""

    def __init__(self, graph: Graph, heads: int = 1, *, max_degree: int | None = None) -> None:
        super().__init__(graph.num_nodes, heads)
        degree = graph.degrees()
        largest = int(degree.max()) if degree.numel() else 0
        last = largest if max_degree is None else max_degree
        self.register_buffer("degree", degree.clamp_max(last), persistent=False)
        # z = (1 + degree) / (2 + degree) at first
        self.logits = nn.Parameter(torch.arange(1, last + 2).log().expand(heads, -1).clone())

    def factors(self) -> tuple[Tensor, Tensor] | None:
        angle = torch.sigmoid(self.logits)[:, self.get_buffer("degree")] * (math.pi / 4)
        sine, cosine = angle.sin(), angle.cos()
        return torch.stack([sine, cosine], -1), torch.stack([cosine, sine], -1)

    def rank(self) -> int:
        return 2

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        factors = self.factors()
        assert factors is not None
        left, right = (part.to(x.dtype) for part in factors)
        return left @ (right.transpose(-2, -1) @ x)

    def cost(self) -> float:
        return 4.0 * self.num_nodes


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


class ToeplitzMask(Mask):
    """M_ij = t(b_{j-i}) on a grid of 1 to 3 dimensions, by FFT in O(N log N) a column.

    `offsets` is the parameter, [heads, prod(2 n_a - 1)]: the grid of b over all offsets j - i, with 0 in the
    middle. It starts as exp(-decay |offset|_1), or its logarithm for the exponential transform.
    """

    def __init__(
        self,
        extent: Sequence[int],
        heads: int = 1,
        *,
        decay: float = 1.0,
        transform: Literal["none", "exponential", "absolute"] = "none",
        init: Tensor | None = None,
    ) -> None:
        if not 1 <= len(extent) <= 3 or min(extent) < 1:
            raise ValueError(f"ToeplitzMask: extent must hold 1 to 3 sizes of at least 1, got {list(extent)}")
        if transform not in ("none", "exponential", "absolute"):
            raise ValueError(f"transform: unknown value '{transform}', expected none, exponential, absolute")
        super().__init__(math.prod(extent), heads)
        self.extent = tuple(extent)
        self.transform = transform
        if init is None:
            exponent = torch.zeros(())
            for size in extent:
                exponent = exponent[..., None] - decay * torch.arange(1 - size, size).abs()
            init = (
                (exponent if transform == "exponential" else exponent.exp()).reshape(1, -1).expand(heads, -1)
            )
        num_offsets = math.prod(2 * size - 1 for size in extent)
        if init.shape != (heads, num_offsets):
            raise ValueError(f"ToeplitzMask: init must be {[heads, num_offsets]}, got {list(init.shape)}")
        self.offsets = nn.Parameter(init.detach().clone())

    def _grid(self, dtype: torch.dtype) -> Tensor:
        grid = self.offsets.to(dtype).reshape(-1, *(2 * size - 1 for size in self.extent))
        if self.transform == "exponential":
            return grid.exp()
        return grid.abs() if self.transform == "absolute" else grid

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        axes = tuple(range(-len(self.extent), 0))
        length = [fast_length(2 * size - 1) for size in self.extent]
        grid = self._grid(x.dtype)
        # y_i = sum_j b[j - i] x_j is a convolution with b reversed; what wraps around misses the outputs.
        kernel = torch.fft.rfftn(grid if transposed else grid.flip(axes), length, axes)
        signal = x.transpose(1, 2).reshape(x.shape[0], x.shape[2], *self.extent)
        out = torch.fft.irfftn(torch.fft.rfftn(signal, length, axes) * kernel.unsqueeze(1), length, axes)
        for axis, size in zip(axes, self.extent):
            out = out.narrow(axis, size - 1, size)
        return out.reshape(x.shape[0], x.shape[2], x.shape[1]).transpose(1, 2)

    def cost(self) -> float:
        points = math.prod(fast_length(2 * size - 1) for size in self.extent)
        return 2.5 * points * math.log2(max(2, points)) + 2 * points


def fast_length(size: int) -> int:
    """The smallest even 2^a 3^b 5^c that is at least `size`: lengths that every FFT library is fast on."""
    best = 2 * size + 2
    fives = 1
    while fives < 2 * size:
        odd = fives
        while odd < 2 * size:
            length = 2 * odd
            while length < size:
                length *= 2
            best = min(best, length)
            odd *= 3
        fives *= 5
    return best


class GlobalTokensMask(Mask):
    """Tokens in front of the nodes (CLS) that see and are seen by all: [[1, 1], [1, M]]."""

    def __init__(self, mask: Mask, tokens: int = 1) -> None:
        if tokens < 1:
            raise ValueError(f"GlobalTokensMask: tokens must be at least 1, got {tokens}")
        super().__init__(mask.num_nodes + tokens, mask.heads)
        self.mask, self.tokens = mask, tokens
        with torch.no_grad():
            entries = mask.entries()
        for index, (pattern, _) in enumerate(entries or ()):
            extended, inner = self._extended(pattern)
            self.add_module(f"rows{index}", PatternBuffers(extended))
            self.register_buffer(f"inner{index}", inner, persistent=False)

    def _extended(self, pattern: Pattern) -> tuple[Pattern, Tensor]:
        """The pattern with the tokens, and where in it the entries of the inner mask stand."""
        tokens, n = self.tokens, self.num_nodes
        row_ptr, col = pattern[0], pattern[1]
        counts = torch.cat([torch.full((tokens,), n), row_ptr.diff() + tokens])
        starts = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
        columns = torch.empty(int(starts[-1]), dtype=torch.int32)
        columns[: tokens * n] = torch.arange(n, dtype=torch.int32).repeat(tokens)
        rows = torch.repeat_interleave(torch.arange(n - tokens), row_ptr.diff())
        # Entry e of the inner mask has all entries before it in front, and the tokens of its own row too.
        inner = tokens * n + torch.arange(col.shape[0]) + tokens * (rows + 1)
        columns[inner] = col + tokens
        seen = starts[tokens:-1, None] + torch.arange(tokens)
        columns[seen] = torch.arange(tokens, dtype=torch.int32)
        return make_pattern(starts, columns), inner

    def entries(self) -> list[tuple[Pattern, Tensor]] | None:
        entries = self.mask.entries()
        if entries is None:
            return None
        result = []
        for index, (_, values) in enumerate(entries):
            rows = self.get_submodule(f"rows{index}")
            assert isinstance(rows, PatternBuffers)
            ones = values.new_ones(values.shape[0], rows.nnz)
            result.append((rows.pattern(), ones.index_copy(1, self.get_buffer(f"inner{index}"), values)))
        return result

    def num_entries(self) -> int:
        rows = [child for child in self.children() if isinstance(child, PatternBuffers)]
        return sum(child.nnz for child in rows) if rows else -1

    def entries_per_head(self) -> bool:
        return self.mask.entries_per_head()

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        tokens, nodes = x[:, : self.tokens], x[:, self.tokens :]
        below = self.mask.multiply(nodes, transposed) + tokens.sum(1, keepdim=True)
        above = x.sum(1, keepdim=True).expand(-1, self.tokens, -1)
        return torch.cat([above, below], 1)

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        return nn.functional.pad(self.mask.dense(dtype), (self.tokens, 0, self.tokens, 0), value=1.0)

    def cost(self) -> float:
        return self.mask.cost() + 2.0 * self.num_nodes
