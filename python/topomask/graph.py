"""Graphs: the weighted adjacency matrix W as compressed sparse rows, and the features that walks leave."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from topomask._catalogue import settings_text
from topomask._ops import USUAL, check_types, ops
from topomask.neighbours import arguments_of

FLOWS = ("source_to_target", "target_to_source")
"""Who hears from whom along an edge, in PyTorch Geometric's words."""


def entries_of(owner: str, edge_index: Any, flow: str) -> Tensor:
    """Row and column of W for every edge: the node that hears, and the one that it hears."""
    if flow not in FLOWS:
        raise ValueError(f"{owner}: flow must be '{FLOWS[0]}' or '{FLOWS[1]}', got {flow!r}")
    edges = torch.as_tensor(edge_index)
    return edges.flip(0) if flow == FLOWS[0] and edges.dim() == 2 else edges


@dataclass(frozen=True, eq=False)
class Graph:
    """A graph of N nodes with E entries; an undirected edge is an entry in both rows.

    Make one with a `from_...` function: it checks everything, and the graph is where its sources are.
    `to(device)` moves it. What is made of it, masks too, is made where it is. Edge weights are constants: no
    gradient flows to them.
    """

    row_ptr: Tensor
    """[N+1] int64, non-decreasing."""
    col: Tensor
    """[E] int32, ascending within a row."""
    weight: Tensor
    """[E] float32, finite, may be negative."""
    directed: bool
    ptr: Tensor | None = None
    """[graphs+1] int64: where each graph of a batch begins, if this is a disjoint union."""
    names: tuple[str, ...] = ()
    """Names of the nodes in the file; empty if it has none."""
    out_degree: int = -1
    """Entries per row if all rows are known to have equally many, else -1; saves waiting for a GPU."""

    @property
    def num_nodes(self) -> int:
        return self.row_ptr.shape[0] - 1

    @property
    def num_entries(self) -> int:
        return self.col.shape[0]

    @property
    def device(self) -> torch.device:
        return self.row_ptr.device

    @property
    def rows(self) -> tuple[Tensor, Tensor, Tensor]:
        """row_ptr, col and weight."""
        return self.row_ptr, self.col, self.weight

    def to(self, device: torch.device | str) -> Graph:
        """The same graph on that device."""
        moved: dict[str, Any] = {key: x.to(device) for key, x in vars(self).items() if isinstance(x, Tensor)}
        return replace(self, **moved)

    def __repr__(self) -> str:
        kind = "directed" if self.directed else "undirected"
        batch = "" if self.ptr is None else f", batch of {self.ptr.shape[0] - 1}"
        return f"Graph({self.num_nodes} nodes, {self.num_entries} entries, {kind}{batch})"

    @staticmethod
    def from_edge_index(
        edge_index: Any, num_nodes: int | None = None, edge_weight: Any = None, *,
        batch: Tensor | None = None, ptr: Tensor | None = None, undirected: bool = False,
        duplicates: str = USUAL.duplicates, self_loops: str = USUAL.self_loops, flow: str = FLOWS[0],
    ) -> Graph:  # fmt: skip
        """From edges as PyTorch Geometric keeps them.

        Args:
            edge_index: [2, E] int64 or int32, a tensor or an array; a column (j, i) is an edge from j to i.
            num_nodes: N; by default one more than the largest node.
            edge_weight: [E], real; by default all 1.
            batch: [N] int64, ascending: which graph of a batch each node belongs to. No edge may join two.
            ptr: [graphs+1] int64: the same as offsets.
            undirected: add the other direction of every edge. Without it the graph is undirected if the edges
                are listed in both directions already.
            duplicates: parallel edges; "drop" keeps the first.
            self_loops: "drop" removes edges from a node to itself.
            flow: as in PyTorch Geometric. "source_to_target": node i hears from j, so that the edge is the entry
                W[i, j]. "target_to_source": j hears from i, the entry W[j, i]. Undirected graphs have both.
        """
        entries = entries_of("Graph.from_edge_index", edge_index, flow)
        weight = None if edge_weight is None else torch.as_tensor(edge_weight).detach()
        row_ptr, col, weight, directed, starts = ops.graph_from_edges(
            entries, weight, num_nodes, undirected, duplicates, self_loops, batch, ptr
        )
        ptr = None if batch is None and ptr is None else starts
        return Graph(row_ptr, col, weight, bool(directed), ptr)

    @staticmethod
    def from_csr(row_ptr: Tensor, col: Tensor, weight: Tensor | None = None) -> Graph:
        """From CSR tensors: row_ptr [N+1], col [E] (need not be sorted), weight [E] or all 1."""
        weight = None if weight is None else weight.detach()
        row_ptr, col, weight, directed = ops.graph_from_csr(row_ptr, col, weight)
        return Graph(row_ptr, col, weight, bool(directed))

    @staticmethod
    def from_dense(adjacency: Tensor) -> Graph:
        """From [N, N] of any real dtype; zero means no edge. Directed unless it equals its transpose."""
        row_ptr, col, weight, directed = ops.graph_from_dense(torch.as_tensor(adjacency).detach())
        return Graph(row_ptr, col, weight, bool(directed))

    @staticmethod
    def from_scipy(matrix: Any) -> Graph:
        """From a SciPy sparse matrix or array [N, N]; its stored entries are the edges."""
        if len(matrix.shape) != 2 or matrix.shape[0] != matrix.shape[1]:
            raise ValueError(f"Graph: expected a square sparse matrix, got shape {list(matrix.shape)}")
        rows = matrix.tocsr(copy=True)
        rows.sum_duplicates()
        return Graph.from_csr(*map(torch.from_numpy, (rows.indptr, rows.indices, rows.data)))

    @staticmethod
    def from_networkx(graph: Any, weight: str | None = "weight") -> Graph:
        """From a NetworkX graph; node i is the i-th of graph.nodes, and an edge u -> v the entry W[u, v], as in
        NetworkX's own adjacency matrices. `weight` names the edges' attribute."""
        index = {node: i for i, node in enumerate(graph.nodes())}
        edges = list(graph.edges(data=weight or True, default=1.0))
        ends = torch.tensor([[index[a], index[b]] for a, b, _ in edges], dtype=torch.int64).reshape(-1, 2)
        values = None if weight is None else torch.tensor([w for *_, w in edges], dtype=torch.float64)
        how = "sum" if graph.is_multigraph() else "drop"
        one_way = bool(graph.is_directed())
        built = Graph.from_edge_index(
            ends.T, len(index), values, undirected=not one_way, duplicates=how, flow=FLOWS[1]
        )
        return replace(built, directed=one_way)

    @staticmethod
    def from_pyg(data: Any, weight: str | None = None) -> Graph:
        """From a PyTorch Geometric Data or Batch: edge_index, num_nodes, ptr, and a weight for each edge.
        A node hears from the sources of its edges.

        weight: the attribute that holds it. By default edge_weight, or else edge_attr where that is one real
        number per edge, [E] or [E, 1]; whole numbers are often labels and count only if they are named.
        """
        values = getattr(data, weight or "edge_weight", None)
        attributes = getattr(data, "edge_attr", None)
        if values is None and weight is not None:
            raise ValueError(f"Graph: the data have no attribute '{weight}'")
        if values is None and attributes is not None and attributes.is_floating_point():
            values = attributes if attributes.shape[1:] in ((), (1,)) else None
        if values is not None and values.shape[1:] == (1,):
            values = values[:, 0]
        ptr = getattr(data, "ptr", None)
        return Graph.from_edge_index(data.edge_index, int(data.num_nodes), values, ptr=ptr)

    @staticmethod
    def from_points(
        points: Any, k: int | None = None, *, symmetric: bool | None = None, **places: Any
    ) -> Graph:
        """The exact k nearest neighbours of points [N, D] by Euclidean distance, on the points' device.

        Args:
            points: [N, D], a tensor or an array; distances are computed in its precision.
            k: neighbours of each node (3).
            symmetric: undirected, i ~ j if either is near the other; else k edges from each node (False).
            places: batch, ptr and box, as in `topomask.knn`.
        """
        if "queries" in places:
            raise TypeError("Graph.from_points: there is no argument 'queries', use topomask.knn")
        check_types("Graph.from_points", int, optional=True, k=k)
        points, _, ptr, _, box = arguments_of(points, **places)
        row_ptr, col, weight, directed, degree = ops.knn_graph(points, k, symmetric, ptr, box)
        ptr = None if ptr is None else ptr.to(points.device)
        return Graph(row_ptr, col, weight, directed, ptr, out_degree=degree)

    @staticmethod
    def grid(*extent: Any, diagonals: bool = USUAL.diagonals, wrap: bool = USUAL.wrap) -> Graph:
        """The grid of an image or a volume: 1 to 3 sizes, or a tuple of them, nodes in row-major order."""
        sizes = list(extent[0] if len(extent) == 1 and isinstance(extent[0], (tuple, list)) else extent)
        for size in sizes:
            check_types("Graph.grid", int, size=size)
        row_ptr, col, weight = ops.grid_graph(sizes, diagonals, wrap)
        return Graph(row_ptr, col, weight, directed=False)

    @staticmethod
    def load(spec: str | Path, **options: str) -> Graph:
        """From a file or a description, as the command line's --graph: "edges.csv.gz", "karate", "ba:1000,4".

        options: duplicates, self_loops, isolated, components, direction and max_file_size, as in the shell.
        `names` then holds what the file calls the nodes, where it does.
        """
        words = [str(option) for option in options.values()]
        row_ptr, col, weight, directed, names, remarks = ops.load_graph(str(spec), list(options), words)
        for remark in remarks:
            warnings.warn(remark, stacklevel=2)
        return Graph(row_ptr, col, weight, bool(directed), names=tuple(names))

    def normalised(self, how: str = USUAL.normalise) -> Graph:
        """W: "symmetric" D^-1/2 A D^-1/2, "random-walk" D^-1 A, "max-degree" A / max |A_ij| d_i, "none" A."""
        return replace(self, weight=ops.normalise(*self.rows, self.directed, how))

    def transposed(self) -> Graph:
        """The graph with every edge reversed."""
        row_ptr, col, weight = ops.transpose_graph(*self.rows)
        return replace(self, row_ptr=row_ptr, col=col, weight=weight, out_degree=-1)

    def is_symmetric(self) -> bool:
        """Whether W equals its transpose, weights included."""
        return bool(ops.is_symmetric(*self.rows))

    def degrees(self) -> Tensor:
        """[N] int64: entries of each row."""
        return self.row_ptr.diff()

    def to_dense(self, dtype: torch.dtype = torch.float64) -> Tensor:
        """W as [N, N]; for small graphs."""
        rows = torch.repeat_interleave(self.degrees())
        dense = torch.zeros(self.num_nodes, self.num_nodes, dtype=dtype, device=self.device)
        return dense.index_put((rows, self.col.long()), self.weight.to(dtype), accumulate=True)

    def to_scipy(self) -> Any:
        """W as a SciPy CSR matrix."""
        import scipy.sparse

        arrays = tuple(part.cpu().numpy() for part in (self.weight, self.col, self.row_ptr))
        return scipy.sparse.csr_matrix(arrays, shape=(self.num_nodes, self.num_nodes))

    def walks(self, num_walks: int, max_hops: int, p_halt: float | None = None, **walks: Any) -> Tensor:
        """[N, num_walks, max_hops + 1] int32: the nodes that walks from every node visit, then -1.

        walks: length, step, coupling and seed. Names and defaults are those of GRFMask.
        """
        settings = {"num_walks": num_walks, "max_hops": max_hops, "p_halt": p_halt, **walks}
        return ops.sample_walks(*self.rows, settings_text(settings))


normalise = Graph.normalised


def partition(
    graph: Graph, parts: int, method: str = USUAL.partition_method, seed: int = USUAL.partition_seed,
    points: Any = None,
) -> Tensor:  # fmt: skip
    """[N] int32: the part of each node, by "metis", "morton" (along `points` [N, D]) or "stream"."""
    return ops.partition_graph(*graph.rows, graph.directed, parts, method, signed_seed(seed), points)


def as_graph(graph: Any) -> Graph:
    """A Graph from a Graph, a NetworkX graph, a SciPy matrix or a PyTorch Geometric Data."""
    if isinstance(graph, Graph):
        return graph
    if hasattr(graph, "is_directed"):
        return Graph.from_networkx(graph)
    if hasattr(graph, "tocsr"):
        return Graph.from_scipy(graph)
    if hasattr(graph, "edge_index"):
        return Graph.from_pyg(graph)
    raise TypeError(
        f"expected a topomask.Graph, a NetworkX graph, a SciPy matrix or a PyTorch Geometric Data, got "
        f"{type(graph).__name__}; Graph.from_edge_index makes one of edges"
    )


def signed_seed(seed: int) -> int:
    """The 64 bits of a seed as the signed number that operators take."""
    if not 0 <= seed < 2**64:
        raise ValueError(f"seed must be between 0 and 2^64 - 1, got {seed}")
    return seed - 2**64 if seed >= 2**63 else seed


def union(graphs: Sequence[Graph]) -> Graph:
    """The disjoint union of graphs, as one graph with `ptr`."""
    rows = [list(part) for part in zip(*(g.rows for g in graphs))] or [[], [], []]
    row_ptr, col, weight, ptr = ops.union_graphs(*rows)
    return Graph(row_ptr, col, weight, any(g.directed for g in graphs), ptr)


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
    graph: Graph, num_walks: int | None = None, max_hops: int | None = None, p_halt: float | None = None, *,
    ensemble: int = 0, **walks: Any,
) -> WalkFeatures:  # fmt: skip
    """Features of every node of W = graph; the same on every machine.

    walks: length, step, coupling, importance_weights and seed. Names and defaults are those of GRFMask.
    """
    settings = {"num_walks": num_walks, "max_hops": max_hops, "p_halt": p_halt, **walks}
    return WalkFeatures(*ops.sample_features(*graph.rows, settings_text(settings), ensemble))
