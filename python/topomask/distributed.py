"""Graphs, masks and attention over the ranks of torch.distributed, each with its own nodes, on CPUs or GPUs.

graph = DistributedGraph.from_shards("parts").normalised()  # of 'topomask partition', one part per rank
mask = GRFMask(graph, f, num_walks=8)
out = attention(q, k, v, mask)  # rows of graph.nodes; gradients of f are summed over the ranks
Calls and backward passes are collective: every rank makes them, in the same order. Graphs and walks stay on the CPU.
"""

from typing import Any

import torch
from torch import Tensor

from topomask._catalogue import settings_text
from topomask._ops import USUAL, check_types
from topomask.graph import FLOWS, Graph, entries_of, signed_seed
from topomask.graph import partition as _partition

if torch.distributed.is_available():  # imported under a group, it would keep Gloo's threads past the end of Python
    import torch.distributed.nn  # noqa: F401
__all__ = ["DistributedGraph", "GRFMask", "attention", "partition", "plan"]


def _call(name: str, *arguments: Any) -> Any:
    return getattr(torch.classes.topomask.Distributed(), name)(*arguments)


def _name(group: Any) -> str:
    """The group's name in c10d's registry: by default of all processes, "" if there is only one."""
    if not torch.distributed.is_initialized():
        return ""
    found: Any = group or torch.distributed.group.WORLD
    return found.group_name


def partition(
    graph: Graph, parts: int | None = None, method: str = USUAL.partition_method,
    seed: int = USUAL.partition_seed, points: Any = None, *, folder: str | None = None, group: Any = None,
) -> Tensor:  # fmt: skip
    """[N] int32: the rank of each node, as `topomask.partition`; parts: as many as there are ranks.

    With a folder its shards are written, by one rank and as 'topomask partition' does: then this is collective.
    """
    number = _call("ranks", _name(group)) if parts is None else parts
    assignment = _partition(graph, number, method, seed, points)
    if folder is not None:
        shards = (assignment, number, method, signed_seed(seed), str(folder))
        _call("write_shards", *graph.rows, graph.directed, *shards, _name(group))
    return assignment


def plan(
    graph: str, ranks: int, device: str = USUAL.device_profile, *, partition: str = USUAL.partition_method,
    heads: int | None = None, m: int | None = None, d: int | None = None, learned: bool | None = None,
    link_bandwidth: float | None = None, **walks: Any,
) -> str:  # fmt: skip
    """Memory, bytes sent and seconds of each rank, as 'topomask plan --ranks'; it needs no ranks itself.

    graph: a file or a description, which may be too large for this machine ("grid:31623x31623", "shards:DIR").
    device: "cpu" or "h200". m, d: query/key features and value channels of a head. learned: with a backward
    pass. link_bandwidth: bytes per second that a rank sends, instead of the device's. walks: as in GRFMask.
    """
    settings = (settings_text(walks), heads, m, d, learned, link_bandwidth)
    return _call("plan", str(graph), ranks, device, partition, *settings)


class DistributedGraph:
    """A graph of which each rank holds the rows of its own nodes."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle
        self.nodes: Tensor = handle.nodes()
        """[n] int64, ascending: the numbers of own nodes in the whole graph; rows are in this order."""
        self.num_nodes: int = handle.num_nodes()
        """Number of nodes of the whole graph."""

    @classmethod
    def from_shards(cls, folder: str, group: Any = None) -> "DistributedGraph":
        """Rank r reads shard r of 'topomask partition'; there must be as many as ranks."""
        return cls(_call("from_shards", str(folder), _name(group)))

    @classmethod
    def from_graph(cls, graph: Graph, assignment: Tensor, group: Any = None) -> "DistributedGraph":
        """Every rank has built the same graph; assignment [N]: the rank of each node (`topomask.partition`)."""
        return cls(_call("from_graph", *graph.rows, graph.directed, assignment, _name(group)))

    @classmethod
    def from_edge_index(
        cls, edge_index: Tensor, nodes: Tensor, num_nodes: int, edge_weight: Tensor | None = None,
        directed: bool = False, group: Any = None, *, flow: str = FLOWS[0],
    ) -> "DistributedGraph":  # fmt: skip
        """Each rank has the edges that end at its own nodes (edge_index [2, e], global numbers), nothing else.

        nodes: [n], ascending, each on one rank. An undirected edge stands at both its ends. flow: as in
        `topomask.Graph.from_edge_index`; with "target_to_source" a rank has the edges that begin at its nodes.
        """
        entries = entries_of("DistributedGraph.from_edge_index", edge_index, flow)
        return cls(_call("from_edges", num_nodes, nodes, entries, edge_weight, directed, _name(group)))

    def normalised(self, how: str = USUAL.normalise) -> "DistributedGraph":
        """W of the walks, as `topomask.normalise`."""
        return DistributedGraph(self._handle.normalised(how))

    def halo_rows(self, x: Tensor) -> Tensor:
        """One row for each neighbour that another rank owns: [n, ...] -> [h, ...]."""
        return self._handle.halo_rows(x)


class GRFMask:
    """M = Phi Psi^T over all ranks, as `topomask.GRFMask`; f [F] or [heads, F], the same on every rank."""

    def __init__(
        self, graph: DistributedGraph, f: Tensor, num_walks: int | None = None, p_halt: float | None = None,
        max_hops: int | None = None, *, route: str = USUAL.route, **walks: Any,
    ) -> None:  # fmt: skip
        """walks: ensembles, coupling, length, step, importance_weights, shared_walks and seed, with the defaults
        of `topomask.GRFMask`. With shared_walks=False later values of f have as many rows."""
        settings = settings_text({"num_walks": num_walks, "p_halt": p_halt, "max_hops": max_hops, **walks})
        heads = 1 if f.dim() == 1 else f.shape[0]
        self.f = f
        self._handle = torch.classes.topomask.DistributedGrfMask(graph._handle, heads, settings, route)


def attention(
    q: Tensor, k: Tensor, v: Tensor, mask: GRFMask | None = None, *, kind: str = USUAL.kind,
    feature_map: str = USUAL.feature_map, engine: str = USUAL.engine, epsilon: float | None = None,
    num_features: int | None = None, feature_seed: int = USUAL.feature_seed, group: Any = None,
) -> Tensor:  # fmt: skip
    """`topomask.attention` on the rows of own nodes; without a mask, over all nodes of all ranks of `group`."""
    check_types("attention", Tensor, q=q, k=k, v=v)
    check_types("attention", str, kind=kind, feature_map=feature_map, engine=engine)
    check_types("attention", int, feature_seed=feature_seed)
    check_types("attention", int, optional=True, num_features=num_features)
    check_types("attention", float, optional=True, epsilon=epsilon)
    handle, f = (None, None) if mask is None else (mask._handle, mask.f)
    options = (kind, feature_map, engine, epsilon, num_features, signed_seed(feature_seed))
    return _call("attention", q, k, v, handle, f, _name(group), *options)
