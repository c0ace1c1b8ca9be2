"""Topological masking of linear attention with graph random features.

graph = topomask.Graph.from_edge_index(edge_index, num_nodes=n)
mask = topomask.GRFMask(graph, num_walks=8, p_halt=0.3, max_hops=4, heads=h, seed=1)
out = topomask.attention(q, k, v, mask=mask)  # [B, H, N, d]
"""

from topomask import distributed, masks, nn
from topomask._attention import attention, plan_attention, plan_ensembles
from topomask._catalogue import catalogue
from topomask._ops import version as _version
from topomask.graph import Graph, WalkFeatures, normalise, partition, sample_walk_features, union
from topomask.kernels import NodeKernel
from topomask.mask import Mask
from topomask.masks import *  # noqa: F403
from topomask.neighbours import Neighbours, knn, radius

__version__ = _version()
__all__ = [
    "Graph", "Mask", "Neighbours", "NodeKernel", "WalkFeatures", "attention", "catalogue", "distributed", "knn", "nn",
    "normalise", "partition", "plan_attention", "plan_ensembles", "radius", "sample_walk_features", "union",
]  # fmt: skip
__all__ += masks.__all__
