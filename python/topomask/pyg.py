"""PyTorch Geometric: masked attention as a convolution."""

from typing import Any

import torch
from torch import Tensor, nn

from topomask._ops import USUAL
from topomask.graph import Graph
from topomask.masks import GRFMask
from topomask.nn import GraphMaskedAttention

__all__ = ["GRFConv"]


class GRFConv(nn.Module):
    """Multi-head attention under a GRF mask of the graph it is called with; also the `conv` of a GPSConv.

    A node attends along incoming edges, as in message passing. The walks are sampled when a graph is first
    seen and kept while the calls pass the same edges, compared by value. Graphs of a batch never mix.

    Args:
        in_channels, out_channels: of the node features; out_channels divisible by heads.
        heads: attention heads, each with its own f.
        max_hops: of the walks.
        kind, feature_map: as in `topomask.attention`.
        mask_options: what else GRFMask takes: num_walks, p_halt, seed, init, ensembles, coupling, ...
    """

    def __init__(
        self, in_channels: int, out_channels: int, heads: int = 1, *, max_hops: int = 4, kind: str = USUAL.kind,
        feature_map: str = USUAL.feature_map, **mask_options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        self.in_channels, self.out_channels, self.heads = in_channels, out_channels, heads
        self.options = {"heads": heads, "max_hops": max_hops, **mask_options}
        self.input = nn.Identity() if in_channels == out_channels else nn.Linear(in_channels, out_channels)
        self.attention = GraphMaskedAttention(out_channels, heads, kind=kind, feature_map=feature_map)
        self.f = nn.Parameter(GRFMask(Graph.grid(1), **self.options).f.detach().clone())
        self._seen: list[Tensor] = []
        self._place = self.f.device
        self._mask: list[GRFMask] = []  # in a list, so that the walks are no part of the module

    def reset_parameters(self) -> None:
        """Reinitialises all parameters; keeps the walks."""
        if isinstance(self.input, nn.Linear):
            self.input.reset_parameters()
        nn.init.xavier_uniform_(self.attention.in_proj_weight)
        self.attention.out_proj.reset_parameters()
        with torch.no_grad():
            self.f.copy_(GRFMask(Graph.grid(1), **self.options).f)

    def _mask_for(self, edge_index: Tensor, edge_weight: Tensor | None, num_nodes: int) -> GRFMask:
        edges = [edge_index] if edge_weight is None else [edge_index, edge_weight]
        same = len(edges) == len(self._seen) and self._mask[0].num_nodes == num_nodes and self._place == self.f.device
        if not same or not all(a.device == b.device and torch.equal(a, b) for a, b in zip(edges, self._seen)):
            graph = Graph.from_edge_index(edge_index, num_nodes, edge_weight)
            self._place, self._mask = self.f.device, [GRFMask(graph, **self.options).to(self.f.device)]
            self._seen = [x.clone() for x in edges]  # the caller may write to them
        mask = self._mask[0]
        mask.f = self.f
        return mask

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        """x: [N, in_channels], edge_index: [2, E], edge_weight: [E] -> [N, out_channels]."""
        return self.attention(self.input(x), mask=self._mask_for(edge_index, edge_weight, x.shape[0]))[0]

    def extra_repr(self) -> str:
        return f"{self.in_channels}, {self.out_channels}, heads={self.heads}"
