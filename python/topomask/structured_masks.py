"""Masks with a structure that makes their products fast: grids, forests, hypercubes, distances, sequences."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from topomask._ops import ops
from topomask.graph import Graph, signed_seed
from topomask.mask import Mask
from topomask.masks import LowRankMask


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

    def cost(self) -> tuple[float, float]:
        points = math.prod(fast_length(2 * size - 1) for size in self.extent)
        return 2.5 * points * math.log2(max(2, points)) + 2 * points, 16.0 * points

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, extent={self.extent}, transform={self.transform}"


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


def _per_head(value: float | Tensor, heads: int, owner: str, name: str) -> nn.Parameter:
    values = torch.as_tensor(value, dtype=torch.get_default_dtype() if isinstance(value, (int, float)) else None)
    if values.shape not in ((), (heads,)):
        raise ValueError(f"{owner}: {name} must be a number or [heads] = [{heads}], got {list(values.shape)}")
    return nn.Parameter(values.detach().expand(heads).clone())


def _dimension_of(graph: Graph) -> int:
    """Of a hypercube; raises where the graph is another."""
    return int(ops.check_hypercube(graph.row_ptr, graph.col))


class ForestMask(Mask):
    """M_ij = exp(a dist(i, j) + b) within a tree, 0 between trees: a dynamic programme, O(N) a column.

    Args:
        graph: undirected, without cycles and self-loops.
        heads: each with its own a and b.
        a, b: the parameters at the start, a number or [heads].
        weighted: distances are sums of the edges' weights instead of hops.
    """

    def __init__(
        self,
        graph: Graph,
        heads: int = 1,
        *,
        a: float | Tensor = -1.0,
        b: float | Tensor = 0.0,
        weighted: bool = False,
    ) -> None:
        super().__init__(graph.num_nodes, heads)
        if graph.directed:
            raise ValueError(
                f"ForestMask: graph must be undirected, got a directed graph of {graph.num_nodes} nodes"
            )
        self.weighted = weighted
        self.a, self.b = _per_head(a, heads, "ForestMask", "a"), _per_head(b, heads, "ForestMask", "b")
        for name in ("row_ptr", "col", "weight"):
            self.register_buffer(f"forest_{name}", getattr(graph, name).cpu(), persistent=False)
        # Says now that there is a cycle, rather than at the first call.
        self._product(torch.zeros(1, graph.num_nodes, 0), torch.zeros(1))
        self.to(graph.device)

    def _product(self, x: Tensor, a: Tensor) -> Tensor:
        rows = (self.get_buffer(f"forest_{name}") for name in ("row_ptr", "col", "weight"))
        return ops.forest_product(x, a, *rows, self.weighted)

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        return self._product(x, self.a.to(x.dtype)) * self.b.to(x.dtype).exp()[:, None, None]

    def cost(self) -> tuple[float, float]:
        return 5.0 * self.num_nodes, 32.0 * self.num_nodes


class HypercubeHeatMask(Mask):
    """exp(-beta L) on the hypercube of 2^d nodes, as d products of 2 x 2 factors: O(N log N) a column.

    Args:
        graph: the hypercube itself (Graph.load("hypercube:8")), or its dimension d. Node i is the vertex whose
            coordinates are the bits of i.
        heads: each with its own beta.
        beta: the parameter at the start, a number or [heads].
        laplacian: "combinatorial" D - A, or "normalised" I - A / d.
    """

    def __init__(
        self,
        graph: Graph | int,
        heads: int = 1,
        *,
        beta: float | Tensor = 1.0,
        laplacian: Literal["combinatorial", "normalised"] = "combinatorial",
    ) -> None:
        dimension = graph if isinstance(graph, int) else _dimension_of(graph.to("cpu"))
        if not 0 <= dimension <= 30:
            raise ValueError(f"HypercubeHeatMask: dimension must be from 0 to 30, got {dimension}")
        if laplacian not in ("combinatorial", "normalised"):
            raise ValueError(f"laplacian: unknown value '{laplacian}', expected combinatorial, normalised")
        super().__init__(2**dimension, heads)
        self.dimension, self.laplacian = dimension, laplacian
        self.beta = _per_head(beta, heads, "HypercubeHeatMask", "beta")
        if isinstance(graph, Graph):
            self.to(graph.device)

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        time = self.beta.to(x.dtype)
        if self.laplacian == "normalised":
            time = time / max(1, self.dimension)
        return ops.hypercube_heat(x, time, self.dimension)

    def cost(self) -> tuple[float, float]:
        return 2.0 * self.num_nodes * self.dimension, 8.0 * self.num_nodes * max(1, self.dimension // 4)


class ShortestPathMask(Mask):
    """A learnable function of the number of hops from i to j (Graphormer's spatial encoding); dense, O(N^2).

    `table` is the parameter, [heads, max_distance + 2]: entry k for k hops, the last for nodes that are farther or out
    of reach. It starts as exp(-decay k), and 0 for those.

    Args:
        graph: N nodes; the distances take N^2 bytes.
        max_distance: at most 254.
        heads: each with its own table.
        decay, init: of the table at the start.
        max_bytes: the largest N^2 that is accepted.
    """

    def __init__(
        self,
        graph: Graph,
        max_distance: int = 8,
        heads: int = 1,
        *,
        decay: float = 1.0,
        init: Tensor | None = None,
        max_bytes: int = 2**30,
    ) -> None:
        super().__init__(graph.num_nodes, heads)
        rows = graph.to("cpu")
        distance = ops.hop_distances(rows.row_ptr, rows.col, max_distance, max_bytes)
        self.register_buffer("distance", distance, persistent=False)
        if init is None:
            near = (-decay * torch.arange(max_distance + 1)).exp()
            init = torch.cat([near, torch.zeros(1)]).expand(heads, -1)
        if init.shape != (heads, max_distance + 2):
            raise ValueError(
                f"ShortestPathMask: init must be {[heads, max_distance + 2]}, got {list(init.shape)}"
            )
        self.table = nn.Parameter(init.detach().clone())
        self.to(graph.device)

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        distance = self.get_buffer("distance")
        values = self.table.to(dtype).index_select(1, distance.flatten().int())
        return values.view(self.heads, self.num_nodes, self.num_nodes)

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        matrix = self.dense(x.dtype)
        return (matrix.transpose(-2, -1) if transposed else matrix) @ x


class SineSPEMask(LowRankMask):
    """Stochastic position encoding of sequences (sineSPE): factors of rank `realisations` whose product has the
    expectation P(i - j), P(t) = sum_k gains_k^2 cos(2 pi frequencies_k t + phases_k).

    `frequencies` (cycles per step), `gains` and `phases` are the parameters, [heads, waves]. The noise depends on the
    seed and the head alone and stays fixed.

    Args:
        num_nodes: length of the sequence.
        realisations: rank of the factors.
        waves: K, where `frequencies` is not given: 1/4, 1/8, ... cycles per step.
        frequencies, gains, phases: [heads, K] at the start; gains default to K^-1/2, phases to 0.
    """

    def __init__(
        self,
        num_nodes: int,
        realisations: int,
        heads: int = 1,
        *,
        waves: int = 4,
        frequencies: Tensor | None = None,
        gains: Tensor | None = None,
        phases: Tensor | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(num_nodes, heads)
        if frequencies is None:
            frequencies = (0.25 * 0.5 ** torch.arange(waves)).expand(heads, -1)
        gains = torch.full_like(frequencies, frequencies.shape[-1] ** -0.5) if gains is None else gains
        phases = torch.zeros_like(frequencies) if phases is None else phases
        for name, values in (("frequencies", frequencies), ("gains", gains), ("phases", phases)):
            if values.dim() != 2 or values.shape != (heads, frequencies.shape[-1]) or not values.numel():
                raise ValueError(f"SineSPEMask: {name} must be [heads, waves], got {list(values.shape)}")
            self.register_parameter(name, nn.Parameter(values.detach().clone()))
        noise = ops.spe_noise(heads, 2 * frequencies.shape[1], realisations, signed_seed(seed))
        self.register_buffer("noise", noise, persistent=False)

    def _sinusoids(self, phases: Tensor | None) -> Tensor:
        # Angles in double: positions may be large.
        frequencies = self.get_parameter("frequencies").double().unsqueeze(1)
        position = torch.arange(self.num_nodes, dtype=torch.float64, device=frequencies.device)[:, None]
        angle = frequencies * position * (2 * math.pi)
        if phases is not None:
            angle = angle + phases.double().unsqueeze(1)
        gain = self.get_parameter("gains").double().unsqueeze(1)
        return torch.cat([angle.cos() * gain, angle.sin() * gain], -1)

    def factors(self) -> tuple[Tensor, Tensor] | None:
        # Only the queries carry the phases; both sides meet the same noise.
        noise, phases = self.get_buffer("noise").double(), self.get_parameter("phases")
        left, right = self._sinusoids(phases) @ noise, self._sinusoids(None) @ noise
        return left.to(phases.dtype), right.to(phases.dtype)

    def rank(self) -> int:
        return self.get_buffer("noise").shape[2]


class ConvolutionalSPEMask(LowRankMask):
    """Stochastic position encoding of sequences (convSPE): P(t) = sum_p query_filter_p key_filter_{p-t}, so that
    P(t) = 0 for |t| >= taps. `query_filter` and `key_filter` are the parameters, [heads, taps].

    Args:
        num_nodes: length of the sequence.
        realisations: rank of the factors.
        taps: of the filters, where they are not given; these are taps^-1/2 at the start, which makes P a triangle.
    """

    def __init__(
        self,
        num_nodes: int,
        realisations: int,
        heads: int = 1,
        *,
        taps: int = 8,
        query_filter: Tensor | None = None,
        key_filter: Tensor | None = None,
        seed: int = 0,
    ) -> None:
        super().__init__(num_nodes, heads)
        query_filter = torch.full((heads, taps), max(taps, 1) ** -0.5) if query_filter is None else query_filter
        key_filter = query_filter if key_filter is None else key_filter
        for name, values in (("query_filter", query_filter), ("key_filter", key_filter)):
            if values.dim() != 2 or values.shape != (heads, query_filter.shape[-1]) or not values.numel():
                raise ValueError(f"ConvolutionalSPEMask: {name} must be [heads, taps], got {list(values.shape)}")
            self.register_parameter(name, nn.Parameter(values.detach().clone()))
        noise = ops.spe_noise(heads, num_nodes + query_filter.shape[1] - 1, realisations, signed_seed(seed))
        self.register_buffer("noise", noise, persistent=False)

    def factors(self) -> tuple[Tensor, Tensor] | None:
        noise = self.get_buffer("noise").double().permute(2, 0, 1)  # [realisations, heads, positions]

        def filtered(taps: Tensor) -> Tensor:
            weight = taps.double().flip(1).unsqueeze(1)
            return nn.functional.conv1d(noise, weight, groups=self.heads).permute(1, 2, 0).to(taps.dtype)

        return filtered(self.get_parameter("query_filter")), filtered(self.get_parameter("key_filter"))

    def rank(self) -> int:
        return self.get_buffer("noise").shape[2]
