"""Nearest neighbours of points: exact, on the device of the points, for batches and periodic boxes."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from topomask._ops import check_types, ops


@dataclass(frozen=True, eq=False)
class Neighbours:
    """A row for every query, nearest first."""

    index: Tensor
    """[Q, k] int32; -1 where there are fewer than k."""
    distance2: Tensor
    """[Q, k] squared distances; infinity at -1."""
    count: Tensor
    """[Q] int32: number of neighbours in each row."""


def arguments_of(
    points: Any, queries: Any = None, batch: Tensor | None = None, ptr: Tensor | None = None,
    query_batch: Tensor | None = None, query_ptr: Tensor | None = None, box: Any = None,
) -> tuple[Any, ...]:  # fmt: skip
    """points, queries, ptr, query_ptr and box as the operators take them."""
    if batch is not None or query_batch is not None:
        ptr, query_ptr = (*ops.batch_ptrs(batch, query_batch, queries is not None), None)[:2]
    points, queries = (None if x is None else torch.as_tensor(x).detach() for x in (points, queries))
    return points, queries, ptr, query_ptr, None if box is None else torch.as_tensor(box, dtype=torch.float64)


def knn(
    points: Any, k: int, *, queries: Any = None, batch: Tensor | None = None, ptr: Tensor | None = None,
    query_batch: Tensor | None = None, query_ptr: Tensor | None = None, box: Any = None,
    include_self: bool | None = None, edge_index: bool = False,
) -> Any:  # fmt: skip
    """The k nearest points of every point or query, by Euclidean distance; ties go to the smaller index.

    Args:
        points: [N, D], a tensor or an array.
        queries: [Q, D], instead of the points themselves.
        batch: [N] ascending: the graph of each point and its neighbours. With queries, query_batch too.
        ptr: [graphs+1]: the same as offsets. With queries, query_ptr too.
        box: lengths of a periodic box, a number or [D]; 0 where a dimension is not periodic.
        include_self: whether a point is its own neighbour (False).
        edge_index: return [2, E] int64 as PyTorch Geometric has it: neighbour, centre.
    """
    check_types("knn", int, k=k)
    points, *where = arguments_of(points, queries, batch, ptr, query_batch, query_ptr, box)
    if edge_index:
        return ops.knn_edges(points, k, *where, include_self)
    return Neighbours(*ops.knn(points, k, *where, include_self))


def radius(
    points: Any, r: float, max_neighbours: int | None = None, *, include_self: bool | None = None,
    edge_index: bool = False, **places: Any,
) -> Any:  # fmt: skip
    """All points within distance r of every point or query, at most the max_neighbours nearest of them.

    include_self, edge_index and places (queries, batch, ptr, query_batch, query_ptr, box) are as in `knn`.
    Without max_neighbours, pass edge_index=True: rows then differ in length.
    """
    points, *where = arguments_of(points, **places)
    if edge_index:
        return ops.radius_edges(points, float(r), max_neighbours, *where, include_self)
    return Neighbours(*ops.radius(points, float(r), max_neighbours, *where, include_self))
