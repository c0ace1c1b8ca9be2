"""Nearest neighbours of points, exact, on the device of the points."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from topomask._ops import ops
from topomask.graph import Graph


def _knn_graph(points: Any, k: int | None = None, *, symmetric: bool | None = None) -> Graph:
    points = torch.as_tensor(points).detach()
    symmetric = True if symmetric is None else symmetric
    row_ptr, col, weight = ops.knn_graph(points.cpu(), 3 if k is None else k, symmetric)
    return Graph(row_ptr, col, weight, directed=not symmetric).to(points.device)


knn_graph = _knn_graph
__all__ = ["Tensor", "knn_graph"]
