"""The masks of the library as modules: buffers, parameters and a docstring each. Names, settings and defaults are
those of its catalogue (`topomask.catalogue()`); a setting that is None is its default."""

from __future__ import annotations

import json
import warnings
from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from topomask._ops import ops
from topomask.graph import Graph, Normalisation, as_graph
from topomask.mask import CatalogueMask, CombinedMask, LibraryMask, Mask, as_text, csr_tensor

Numbers = Sequence[float] | Tensor


def catalogue() -> list[dict[str, Any]]:
    """Every mask: name, description, cost, settings with defaults, parameters with shapes."""
    return json.loads(ops.mask_catalogue())


class GRFMask(CatalogueMask):
    """Graph random features with learnable f: M = Phi Psi^T estimates sum_k (f * f)_k W^k at O(N) cost.

    The walks are sampled once, here, on the device of the graph; the same graph, settings and seed give the walks of
    the C++ library and of `topomask features`, bit for bit. `f` is the parameter, [heads, max_hops + 1].

    Args:
        graph: N nodes: a Graph, a NetworkX graph or a SciPy matrix.
        num_walks: walks from every node (16).
        p_halt: probability to halt at every node (0.5).
        max_hops: length of the longest walk (10).
        heads: one f for each head, 1 for one mask that serves all.
        seed: everything random follows from it (0).
        init: f at the start, the same for every head: a node kernel by name (its modulation, or its coefficients for
            asymmetric ensembles), numbers f_0, f_1, ... (zero beyond), or a tensor [heads, max_hops + 1]. The
            default is a regularised Laplacian: positive and decaying.
        ensembles: "shared" (keys use the queries' walks; the diagonal is biased upwards), "independent" (unbiased),
            "asymmetric" (keys are one-hot: M estimates sum_k f_k W^k).
        coupling: of the walks of a node: "independent", "antithetic", "repelling" or "both".
        shared_walks: False samples walks of its own for each head (True).
        step: "uniform" or "weighted" by |W|.
        length: "geometric", "fixed" (always max_hops), or survival probabilities S(0), ..., S(max_hops).
        importance_weights: False is the ad-hoc variant, every visit counts 1 (True).
        normalise: how W is made of the graph ("symmetric"); "none" if it is W already.
        dtype: of f.
    """

    f: nn.Parameter

    def __init__(
        self,
        graph: Graph,
        num_walks: int | None = None,
        p_halt: float | None = None,
        max_hops: int | None = None,
        heads: int = 1,
        seed: int | None = None,
        *,
        init: str | Numbers | None = None,
        ensembles: Literal["shared", "independent", "asymmetric"] | None = None,
        coupling: Literal["independent", "antithetic", "repelling", "both"] | None = None,
        shared_walks: bool | None = None,
        step: Literal["uniform", "weighted"] | None = None,
        length: Literal["geometric", "fixed"] | Sequence[float] | None = None,
        importance_weights: bool | None = None,
        normalise: Normalisation | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        if length is not None and not isinstance(length, str):
            length = "survival:" + ",".join(repr(float(s)) for s in length)  # type: ignore[assignment]
        settings = {
            "num_walks": num_walks, "p_halt": p_halt, "max_hops": max_hops, "seed": seed, "ensembles": ensembles,
            "coupling": coupling, "shared_walks": shared_walks, "step": step, "length": length,
            "importance_weights": importance_weights, "normalise": normalise,
            "init": None if isinstance(init, Tensor) else init,
        }  # fmt: skip
        graph = as_graph(graph)
        texts = {key: as_text(value) for key, value in settings.items() if value is not None}
        rows = [graph.row_ptr, graph.col, graph.weight]
        if advice := ops.mask_advice("grf", rows, graph.directed, heads, json.dumps(texts)):
            warnings.warn(advice, stacklevel=2)
        super().__init__(
            "grf", graph, heads=heads, settings=settings, dtype=dtype, parameters=("f",),
            given={"f": init.to(dtype) if isinstance(init, Tensor) else None},
        )  # fmt: skip

    def resample(self, seed: int) -> GRFMask:
        """Fresh walks on the same graph for the next step; f stays."""
        self._settings["seed"] = str(seed)
        _, constants, _ = self._expression()
        recipe = json.loads(self._recipe)
        ptr = constants[3] if len(constants) > 3 else None
        directed, degree = recipe.get("directed", False), recipe.get("degree", -1)
        row_ptr, col, weight = constants[:3]
        return self.rebuild(Graph(row_ptr, col, weight, directed, ptr, out_degree=degree))

    def rebuild(self, graph: Graph) -> GRFMask:
        """The same mask on a new graph for the next step, on the graph's device; f stays."""
        self.num_nodes = graph.num_nodes
        self._buffers.clear()
        self._make(graph, {"f": self.f.detach().to(graph.device)})
        return self

    def features(self, head: int = 0) -> tuple[Tensor, Tensor]:
        """Phi and Psi of a head as sparse CSR tensors [N, N] in the dtype of f; not differentiable."""
        recipe, constants, parameters = self._expression()
        fixed = [parameter.detach() for parameter in parameters]
        phi_ptr, phi_col, phi, psi_ptr, psi_col, psi = ops.mask_features(recipe, constants, fixed, head)
        return csr_tensor(phi_ptr, phi_col, phi), csr_tensor(psi_ptr, psi_col, psi)

    def _load_from_state_dict(self, state_dict, prefix, *rest):  # type: ignore[no-untyped-def]
        # Files of earlier versions of the C++ library call f by its long name.
        if f"{prefix}modulation" in state_dict and f"{prefix}f" not in state_dict:
            state_dict[f"{prefix}f"] = state_dict.pop(f"{prefix}modulation")
        super()._load_from_state_dict(state_dict, prefix, *rest)


class PowerSeriesMask(CatalogueMask):
    """M = sum_k alpha_k W^k exactly, by Horner's rule: O(K E) per column. `alpha` is the parameter, [heads, K+1].

    Args:
        graph: N nodes.
        max_power: K, the highest power of W (10).
        heads: one alpha for each head, 1 for one mask that serves all.
        init: alpha at the start, the same for every head: a node kernel by name, numbers alpha_0, alpha_1, ... (zero
            beyond), or a tensor [heads, max_power + 1].
        squared: S S^T of the sum S, which a GRFMask with f = alpha estimates (False).
        normalise: how W is made of the graph ("symmetric"); "none" if it is W already.
        dtype: of alpha.
    """

    alpha: nn.Parameter

    def __init__(
        self,
        graph: Graph,
        max_power: int | None = None,
        heads: int = 1,
        *,
        init: str | Numbers | None = None,
        squared: bool | None = None,
        normalise: Normalisation | None = None,
        dtype: torch.dtype = torch.float32,
    ) -> None:
        settings = {"max_power": max_power, "squared": squared, "normalise": normalise,
                    "init": None if isinstance(init, Tensor) else init}  # fmt: skip
        super().__init__(
            "power-series", as_graph(graph), heads=heads, settings=settings, dtype=dtype, parameters=("alpha",),
            given={"alpha": init.to(dtype) if isinstance(init, Tensor) else None},
        )  # fmt: skip


class ToeplitzMask(CatalogueMask):
    """M_ij = t(b_{j-i}) on a grid of 1 to 3 dimensions, by FFT in O(N log N) per column.

    `offsets` is the parameter, [heads, prod(2 n_a - 1)]: the grid of b over all offsets j - i, with 0 in the
    middle. It starts as exp(-decay |offset|_1), or its logarithm for the exponential transform.

    Args:
        extent: 1 to 3 sizes of the grid.
        decay: of the offsets at the start (1).
        transform: t: "none", "exponential" or "absolute".
        init: [heads, prod(2 n_a - 1)] instead of the decay.
    """

    offsets: nn.Parameter

    def __init__(
        self,
        extent: Sequence[int],
        heads: int = 1,
        *,
        decay: float | None = None,
        transform: Literal["none", "exponential", "absolute"] | None = None,
        init: Tensor | None = None,
    ) -> None:
        self.extent = tuple(extent)
        settings = {"extent": "x".join(map(str, extent)), "decay": decay, "transform": transform}
        super().__init__(
            "toeplitz", heads=heads, settings=settings, given={"offsets": init}, parameters=("offsets",)
        )


class ForestMask(CatalogueMask):
    """M_ij = exp(a dist(i, j) + b) within a tree, 0 between trees: a dynamic programme, O(N) per column.

    Args:
        graph: undirected, without cycles and self-loops.
        heads: each with its own a and b.
        a, b: the parameters at the start, a number or [heads] (-1 and 0).
        weighted: distances are sums of the edges' weights instead of hops (False).
    """

    a: nn.Parameter
    b: nn.Parameter

    def __init__(
        self,
        graph: Graph,
        heads: int = 1,
        *,
        a: float | Tensor | None = None,
        b: float | Tensor | None = None,
        weighted: bool | None = None,
    ) -> None:
        super().__init__("forest", as_graph(graph), heads=heads, settings={"weighted": weighted},
                         given={"a": a, "b": b}, parameters=("a", "b"))  # fmt: skip


class HypercubeHeatMask(CatalogueMask):
    """exp(-beta L) on the hypercube of 2^d nodes, as d products of 2 x 2 factors: O(N log N) per column.

    Args:
        graph: the hypercube itself (Graph.load("hypercube:8")), or its dimension d. Node i is the vertex whose
            coordinates are the bits of i.
        heads: each with its own beta.
        beta: the parameter at the start, a number or [heads] (1).
        laplacian: "combinatorial" D - A, or "normalised" I - A / d.
    """

    beta: nn.Parameter

    def __init__(
        self,
        graph: Graph | int,
        heads: int = 1,
        *,
        beta: float | Tensor | None = None,
        laplacian: Literal["combinatorial", "normalised"] | None = None,
    ) -> None:
        cube = Graph.load(f"hypercube:{graph}") if isinstance(graph, int) else as_graph(graph)
        super().__init__("hypercube-heat", cube, heads=heads, settings={"laplacian": laplacian},
                         given={"beta": beta}, parameters=("beta",))  # fmt: skip


class ShortestPathMask(CatalogueMask):
    """A learnable function of the number of hops from i to j (Graphormer's spatial encoding); dense, O(N^2).

    `table` is the parameter, [heads, max_distance + 2]: entry k for k hops, the last for nodes that are farther or out
    of reach. It starts as exp(-decay k), and 0 for those.

    Args:
        graph: N nodes; the distances take N^2 bytes.
        max_distance: at most 254 (8).
        heads: each with its own table.
        decay: of the table at the start (1).
        init: [heads, max_distance + 2] instead of the decay.
        max_bytes: the largest N^2 that is accepted (2^30).
    """

    table: nn.Parameter

    def __init__(
        self,
        graph: Graph,
        max_distance: int | None = None,
        heads: int = 1,
        *,
        decay: float | None = None,
        init: Tensor | None = None,
        max_bytes: int | None = None,
    ) -> None:
        settings = {"max_distance": max_distance, "decay": decay, "max_bytes": max_bytes}
        super().__init__("shortest-path", as_graph(graph), heads=heads, settings=settings, given={"table": init},
                         parameters=("table",))  # fmt: skip


class DegreeMask(CatalogueMask):
    """sin(pi/4 (z(d_i) + z(d_j))) with learnable z = sigmoid(logits), logits [heads, max_degree + 1]; rank 2.

    Args:
        graph: N nodes.
        heads: each with its own logits.
        max_degree: larger degrees count as this; by default the graph's largest.
        init: logits at the start; by default z = (1 + degree) / (2 + degree).
    """

    logits: nn.Parameter

    def __init__(
        self, graph: Graph, heads: int = 1, *, max_degree: int | None = None, init: Tensor | None = None
    ) -> None:
        super().__init__("degree", as_graph(graph), heads=heads, settings={"max_degree": max_degree},
                         given={"logits": init}, parameters=("logits",))  # fmt: skip


class NeighbourMask(CatalogueMask):
    """M_ij = 1 where j lies within some steps of i along the edges, else 0 (hard, as in GAT).

    Args:
        graph: N nodes.
        hops: as far as this many steps (1).
        include_self: M_ii = 1 (True).
    """

    def __init__(self, graph: Graph, hops: int | None = None, *, include_self: bool | None = None) -> None:
        super().__init__("neighbours", as_graph(graph), settings={"hops": hops, "include_self": include_self})


class NoMask(CatalogueMask):
    """Attention without a mask: all entries 1."""

    def __init__(self, num_nodes: int) -> None:
        super().__init__("none", num_nodes=num_nodes)


class CausalMask(CatalogueMask):
    """M_ij = 1 for j <= i, as a prefix sum."""

    def __init__(self, num_nodes: int) -> None:
        super().__init__("causal", num_nodes=num_nodes)


class LearnedFeaturesMask(CatalogueMask):
    """M = F F^T with features that are learned freely (an ablation of the paper): `features` [heads, N, rank].

    Args:
        num_nodes: N.
        rank: columns of F (16).
        init: [heads, N, rank]; by default normal numbers with mean and deviation 1 over sqrt(rank), as in the paper.
        seed: of those (0).
    """

    features: nn.Parameter

    def __init__(
        self,
        num_nodes: int,
        rank: int | None = None,
        heads: int = 1,
        *,
        init: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__("learned-features", num_nodes=num_nodes, heads=heads, settings={"rank": rank, "seed": seed},
                         given={"features": init}, parameters=("features",))  # fmt: skip


class SineSPEMask(CatalogueMask):
    """Stochastic position encoding of sequences (sineSPE): factors of rank `realisations` whose product has the
    expectation P(i - j), P(t) = sum_k gains_k^2 cos(2 pi frequencies_k t + phases_k).

    `frequencies` (cycles per step), `gains` and `phases` are the parameters, [heads, waves]. The noise depends on the
    seed and the head alone and stays fixed.

    Args:
        num_nodes: length of the sequence.
        realisations: rank of the factors (64).
        waves: K, where `frequencies` is not given: 1/4, 1/8, ... cycles per step (4).
        frequencies, gains, phases: [heads, K] at the start; gains default to K^-1/2, phases to 0.
    """

    frequencies: nn.Parameter
    gains: nn.Parameter
    phases: nn.Parameter

    def __init__(
        self,
        num_nodes: int,
        realisations: int | None = None,
        heads: int = 1,
        *,
        waves: int | None = None,
        frequencies: Tensor | None = None,
        gains: Tensor | None = None,
        phases: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            "spe-sine", num_nodes=num_nodes, heads=heads, parameters=("frequencies", "gains", "phases"),
            settings={"realisations": realisations, "waves": waves, "seed": seed},
            given={"frequencies": frequencies, "gains": gains, "phases": phases},
        )  # fmt: skip


class ConvolutionalSPEMask(CatalogueMask):
    """Stochastic position encoding of sequences (convSPE): P(t) = sum_p query_filter_p key_filter_{p-t}, so that
    P(t) = 0 for |t| >= taps. `query_filter` and `key_filter` are the parameters, [heads, taps].

    Args:
        num_nodes: length of the sequence.
        realisations: rank of the factors (64).
        taps: of the filters, where they are not given (8); these are taps^-1/2 at the start, so P is a triangle.
    """

    query_filter: nn.Parameter
    key_filter: nn.Parameter

    def __init__(
        self,
        num_nodes: int,
        realisations: int | None = None,
        heads: int = 1,
        *,
        taps: int | None = None,
        query_filter: Tensor | None = None,
        key_filter: Tensor | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            "spe-convolutional", num_nodes=num_nodes, heads=heads, parameters=("query_filter", "key_filter"),
            settings={"realisations": realisations, "taps": taps, "seed": seed},
            given={"query_filter": query_filter, "key_filter": key_filter},
        )  # fmt: skip


class SparseMask(LibraryMask):
    """Any sparse matrix: a pattern for all heads and learnable values, [heads, nnz] in the pattern's order."""

    values: nn.Parameter
    _names = ("values",)

    def __init__(self, row_ptr: Tensor, col: Tensor, values: Tensor, *, learnable: bool = True) -> None:
        super().__init__(row_ptr.shape[0] - 1)
        values = torch.as_tensor(values).detach().clone()
        rows = [row_ptr.to(values.device, torch.int64), col.to(values.device, torch.int32)]
        self._adopt((*ops.make_tensor_mask("sparse", rows, [values]), [values]))
        self.values.requires_grad_(learnable)


class DenseMask(LibraryMask):
    """Any matrix, [N, N] or [heads, N, N], learnable if asked for."""

    matrix: nn.Parameter
    _names = ("matrix",)

    def __init__(self, matrix: Tensor, *, learnable: bool = False) -> None:
        super().__init__(matrix.shape[-1])
        matrix = torch.as_tensor(matrix).detach().clone()
        matrix = matrix[None] if matrix.dim() == 2 else matrix
        self._adopt((*ops.make_tensor_mask("dense", [], [matrix]), [matrix]))
        self.matrix.requires_grad_(learnable)


class SumMask(CombinedMask):
    """The sum of masks on the same nodes."""

    def __init__(self, *masks: Mask) -> None:
        super().__init__("sum", masks)
        self.masks = nn.ModuleList(masks)
        self._expression()


class BlockDiagonalMask(CombinedMask):
    """A batch of different graphs: the masks stand one after the other on the diagonal."""

    def __init__(self, *masks: Mask) -> None:
        super().__init__("block-diagonal", masks)
        self.masks = nn.ModuleList(masks)
        self._expression()


class ScaledMask(CombinedMask):
    """diag(r) M diag(c). `row_scale` and `column_scale` are the parameters, [N] or [heads, N]; None stands for ones."""

    row_scale: nn.Parameter | None
    column_scale: nn.Parameter | None

    def __init__(self, mask: Mask, row_scale: Tensor | None = None, column_scale: Tensor | None = None) -> None:
        super().__init__("scaled", [mask], [int(row_scale is not None), int(column_scale is not None)])
        self.mask = mask
        for name, scale in (("row_scale", row_scale), ("column_scale", column_scale)):
            self.register_parameter(name, None if scale is None else nn.Parameter(scale.detach().clone()))
        self._expression()

    def _own_parameters(self) -> list[Tensor]:
        return [scale for scale in (self.row_scale, self.column_scale) if scale is not None]


class AbsoluteMask(CombinedMask):
    """|M|, entry by entry: keeps normalisers positive while learned parameters change sign.

    Its derivative is the sign of an entry, and 0 where the entry is 0. The factors of M are lost.
    """

    def __init__(self, mask: Mask) -> None:
        super().__init__("absolute", [mask])
        self.mask = mask
        self._expression()


class GlobalTokensMask(CombinedMask):
    """Tokens in front of the nodes (CLS) that see and are seen by all: [[1, 1], [1, M]]."""

    def __init__(self, mask: Mask, tokens: int = 1) -> None:
        super().__init__("global-tokens", [mask], [tokens])
        self.mask = mask
        self.tokens = tokens
        self._expression()

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, tokens={self.tokens}"

