"""Nearest neighbours of points: exact, on the device of the points, for batches and periodic boxes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from topomask._ops import ops
from topomask.graph import Graph


@dataclass(frozen=True, eq=False)
class Neighbours:
    """A row for every query, nearest first."""

    index: Tensor
    """[Q, k] int32; -1 where there are fewer than k."""
    distance2: Tensor
    """[Q, k] squared distances; infinity at -1."""
    count: Tensor
    """[Q] int32: how many of a row are neighbours."""


def _where(points: Any, batch: Tensor | None, ptr: Tensor | None, **queries: Any) -> tuple[Any, ...]:
    """points, queries, ptr and query_ptr as the operators take them."""
    points = torch.as_tensor(points).detach()
    others = queries.get("queries")
    query_batch, query_ptr = queries.get("query_batch"), queries.get("query_ptr")
    if batch is not None or query_batch is not None:
        if batch is None or (others is not None) != (query_batch is not None):
            raise ValueError("batch and query_batch go together, expected both")
        both = [x for x in (batch, query_batch) if x is not None]
        graphs = max((int(x[-1]) + 1 if x.numel() else 0) for x in both)
        ptr = ops.ptr_of_batch(batch, graphs)
        query_ptr = None if query_batch is None else ops.ptr_of_batch(query_batch, graphs)
    return points, None if others is None else torch.as_tensor(others).detach(), ptr, query_ptr


def _box(box: Any, points: Tensor) -> Tensor | None:
    return None if box is None else torch.as_tensor(box, dtype=torch.float64).expand(points.shape[-1]).contiguous()


def knn(
    points: Any,
    k: int,
    *,
    queries: Any = None,
    batch: Tensor | None = None,
    ptr: Tensor | None = None,
    query_batch: Tensor | None = None,
    query_ptr: Tensor | None = None,
    box: Any = None,
    include_self: bool | None = None,
    edge_index: bool = False,
) -> Any:
    """The k nearest points of every point, or of every query, by Euclidean distance; ties go to the smaller index.

    Args:
        points: [N, D], a tensor or an array.
        queries: [Q, D], instead of the points themselves.
        batch: [N] ascending: which graph each point belongs to; neighbours are of the same graph. With queries,
            query_batch too.
        ptr: [graphs+1]: the same as offsets. With queries, query_ptr too.
        box: lengths of a periodic box, a number or [D]; 0 where a dimension is not periodic.
        include_self: whether a point is its own neighbour (False).
        edge_index: return [2, E] int64 as PyTorch Geometric has it: neighbour, centre.
    """
    points, queries, ptr, query_ptr = _where(
        points, batch, ptr, queries=queries, query_batch=query_batch, query_ptr=query_ptr
    )
    where = (queries, ptr, query_ptr, _box(box, points), include_self)
    if edge_index:
        return ops.knn_edges(points, k, *where)
    return Neighbours(*ops.knn(points, k, *where))


def radius(
    points: Any,
    r: float,
    max_neighbours: int | None = None,
    *,
    queries: Any = None,
    batch: Tensor | None = None,
    ptr: Tensor | None = None,
    query_batch: Tensor | None = None,
    query_ptr: Tensor | None = None,
    box: Any = None,
    include_self: bool | None = None,
    edge_index: bool = False,
) -> Any:
    """All points within distance r of every point or query, at most the max_neighbours nearest of them.

    Other arguments are those of `knn`. Without max_neighbours there is no length for rows: edge_index=True then.
    """
    points, queries, ptr, query_ptr = _where(
        points, batch, ptr, queries=queries, query_batch=query_batch, query_ptr=query_ptr
    )
    where = (queries, ptr, query_ptr, _box(box, points), include_self)
    if edge_index:
        return ops.radius_edges(points, float(r), max_neighbours, *where)
    if max_neighbours is None:
        raise ValueError("radius: max_neighbours must be given, or edge_index=True for all of them")
    return Neighbours(*ops.radius(points, float(r), max_neighbours, *where))


def knn_graph(
    points: Any,
    k: int | None = None,
    *,
    symmetric: bool | None = None,
    batch: Tensor | None = None,
    ptr: Tensor | None = None,
    box: Any = None,
) -> Graph:
    """See Graph.from_points."""
    points, _, ptr, _ = _where(points, batch, ptr)
    row_ptr, col, weight, directed, out_degree = ops.knn_graph(points, k, symmetric, ptr, _box(box, points))
    return Graph(
        row_ptr, col, weight, directed, None if ptr is None else ptr.to(points.device), out_degree=out_degree
    )
