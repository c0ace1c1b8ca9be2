"""The masks of the library as modules. What they are made with, and the first line and the arguments of their
docstrings, come from its catalogue (`topomask.catalogue()`)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from topomask._ops import ops
from topomask.graph import Graph, as_graph
from topomask.mask import CatalogueMask, CombinedMask, LibraryMask, Mask

__all__ = [
    "AbsoluteMask", "BlockDiagonalMask", "CausalMask", "ConvolutionalSPEMask", "DegreeMask", "DenseMask",
    "ForestMask", "GRFMask", "GlobalTokensMask", "HypercubeHeatMask", "LearnedFeaturesMask", "LowRankMask",
    "NeighbourMask", "NoMask", "PowerSeriesMask", "ScaledMask", "ShortestPathMask", "SineSPEMask",
    "SparseMask", "SumMask", "ToeplitzMask",
]  # fmt: skip


class GRFMask(CatalogueMask, positional="graph num_walks p_halt max_hops heads seed"):
    """The walks are sampled once, here, on the device of the graph; the same graph, settings and seed give
    the walks of the C++ library and of `topomask features`, bit for bit."""

    f: nn.Parameter

    def resample(self, seed: int) -> GRFMask:
        """Fresh walks on the same graph for the next step; f stays."""
        row_ptr, col, weight, *ptr = self._expression()[1]
        directed, degree = self._kind
        same = Graph(row_ptr, col, weight, directed, ptr[0] if ptr else None, (), degree)
        return self._renew(same, {**self._settings, "seed": str(seed)})

    def rebuild(self, graph: Graph) -> GRFMask:
        """The same mask on a new graph for the next step, on the graph's device; f stays."""
        return self._renew(as_graph(graph), self._settings)

    def _renew(self, graph: Graph, settings: dict[str, str]) -> GRFMask:
        self._make(graph, {"f": self.f.detach().to(graph.device)}, settings)
        return self

    def features(self, head: int = 0) -> tuple[Tensor, Tensor]:
        """Phi and Psi of a head as sparse CSR tensors [N, N] in the dtype of f; not differentiable."""
        with torch.no_grad():
            phi, psi = ops.mask_features(*self._expression(), head)
        return phi, psi


class PowerSeriesMask(CatalogueMask, positional="graph max_power heads"):
    alpha: nn.Parameter


class ToeplitzMask(CatalogueMask, positional="extent heads"):
    """`offsets` is the grid of b over all offsets j - i, with 0 in the middle."""

    offsets: nn.Parameter

    @property
    def extent(self) -> tuple[int, ...]:
        return tuple(ops.parse_extent(self._settings["extent"]))


class ForestMask(CatalogueMask, positional="graph heads"):
    """The graph is undirected, without cycles and self-loops."""

    a: nn.Parameter
    b: nn.Parameter


class HypercubeHeatMask(CatalogueMask, positional="graph heads"):
    """The graph is the hypercube itself (Graph.load("hypercube:8")), or its dimension d. Node i is the vertex
    whose coordinates are the bits of i."""

    beta: nn.Parameter

    @staticmethod
    def _as_graph(graph: Any) -> Graph:
        return Graph.load(f"hypercube:{graph}") if isinstance(graph, int) else as_graph(graph)


class ShortestPathMask(CatalogueMask, positional="graph max_distance heads"):
    """Entry k of `table` is for k hops, the last for nodes that are farther or unreachable."""

    table: nn.Parameter


class DegreeMask(CatalogueMask, positional="graph heads"):
    logits: nn.Parameter


class NeighbourMask(CatalogueMask, positional="graph hops"):
    """It has no parameters and serves every head."""


class NoMask(CatalogueMask, positional="num_nodes"):
    """What `topomask.attention` computes without a mask; for use inside other masks."""


class CausalMask(CatalogueMask, positional="num_nodes"):
    """For sequences: a token attends to itself and to those before it."""


class LearnedFeaturesMask(CatalogueMask, positional="num_nodes rank heads"):
    features: nn.Parameter


class SineSPEMask(CatalogueMask, positional="num_nodes realisations heads"):
    """The noise depends on the seed and the head alone and stays fixed."""

    frequencies: nn.Parameter
    gains: nn.Parameter
    phases: nn.Parameter


class ConvolutionalSPEMask(CatalogueMask, positional="num_nodes realisations heads"):
    """The noise depends on the seed and the head alone and stays fixed."""

    query_filter: nn.Parameter
    key_filter: nn.Parameter


class SparseMask(LibraryMask):
    """Any sparse matrix: a pattern for all heads and learnable values, [heads, nnz] in its order."""

    values: nn.Parameter
    _names = ("values",)

    def __init__(self, row_ptr: Tensor, col: Tensor, values: Tensor, *, learnable: bool = True) -> None:
        super().__init__(row_ptr.shape[0] - 1)
        values = torch.as_tensor(values)
        rows = [row_ptr.to(values.device, torch.int64), col.to(values.device)]
        self._adopt_tensors("sparse", rows, learnable, values)


class LowRankMask(LibraryMask):
    """left right^T of any factors, [N, R] or [heads, N, R], learnable if asked for."""

    left: nn.Parameter
    right: nn.Parameter
    _names = ("left", "right")

    def __init__(self, left: Tensor, right: Tensor, *, learnable: bool = False) -> None:
        super().__init__(left.shape[-2])
        both = [torch.as_tensor(factor) for factor in (left, right)]
        self._adopt_tensors("low-rank", [], learnable, *(x[None] if x.dim() == 2 else x for x in both))


class DenseMask(LibraryMask):
    """Any matrix, [N, N] or [heads, N, N], learnable if asked for."""

    matrix: nn.Parameter
    _names = ("matrix",)

    def __init__(self, matrix: Tensor, *, learnable: bool = False) -> None:
        super().__init__(matrix.shape[-1])
        matrix = torch.as_tensor(matrix)
        self._adopt_tensors("dense", [], learnable, matrix[None] if matrix.dim() == 2 else matrix)


class SumMask(CombinedMask):
    """The sum of masks on the same nodes."""

    def __init__(self, *masks: Mask) -> None:
        super().__init__("sum", masks)


class BlockDiagonalMask(CombinedMask):
    """A batch of different graphs: the masks are blocks on the diagonal."""

    def __init__(self, *masks: Mask) -> None:
        super().__init__("block-diagonal", masks)


class ScaledMask(CombinedMask):
    """diag(r) M diag(c). `row_scale` and `column_scale` are parameters, [N] or [heads, N]; None is ones."""

    row_scale: nn.Parameter | None
    column_scale: nn.Parameter | None

    def __init__(
        self, mask: Mask, row_scale: Tensor | None = None, column_scale: Tensor | None = None
    ) -> None:
        given = [int(scale is not None) for scale in (row_scale, column_scale)]
        super().__init__("scaled", mask, given, row_scale=row_scale, column_scale=column_scale)


class AbsoluteMask(CombinedMask):
    """|M|, entry by entry: keeps normalisers positive while learned parameters change sign.

    Its derivative is the sign of an entry, and 0 where the entry is 0. The factors of M are lost.
    """

    def __init__(self, mask: Mask) -> None:
        super().__init__("absolute", mask)


class GlobalTokensMask(CombinedMask):
    """Tokens in front of the nodes (CLS) that attend to all and that all attend to: [[1, 1], [1, M]]."""

    def __init__(self, mask: Mask, tokens: int = 1) -> None:
        super().__init__("global-tokens", mask, [tokens])
        self.tokens = tokens

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, tokens={self.tokens}"
