"""Shapes of the operators for tracing, where they depend on the data or on the device.

The computation, its gradients and all other shapes are in C++ (src/ops). Here torch learns what the remaining
operators return without running them, so that torch.compile and torch.export can trace through.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from topomask._load import load_operators

load_operators()
ops = torch.ops.topomask


def _unknown_size() -> torch.SymInt:
    return torch.library.get_ctx().new_dynamic_size()


def _flag() -> Tensor:
    return torch.empty((), dtype=torch.bool)


def _graph(nodes: Any, entries: Any = None, device: Any = None) -> tuple[Tensor, Tensor, Tensor]:
    entries = _unknown_size() if entries is None else entries
    row_ptr = torch.empty(nodes + 1, dtype=torch.int64, device=device)
    col = torch.empty(entries, dtype=torch.int32, device=device)
    return row_ptr, col, torch.empty(entries, device=device, dtype=torch.float32)


def _graph_from_edges(edges: Tensor, weight: Any, nodes: Any, *others: Any) -> tuple[Tensor, ...]:
    known = _graph(_unknown_size() if nodes is None else nodes, None, edges.device)
    batched = any(isinstance(x, Tensor) for x in others)
    return *known, _flag(), edges.new_empty(_unknown_size() if batched else 0, dtype=torch.int64)


def _lists(points: Tensor, size: Any, queries: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
    rows = (points if queries is None else queries).shape[0]
    index = points.new_empty(rows, size, dtype=torch.int32)
    return index, points.new_empty(rows, size, dtype=_wide(points)), index.new_empty(rows)


def _batch_ptrs(batch: Tensor, query_batch: Tensor | None) -> list[Tensor]:
    size = _unknown_size()
    return [x.new_empty(size, dtype=torch.int64) for x in (batch, query_batch) if x is not None]


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _features(row_ptr: Tensor, col: Tensor, *_: Any) -> tuple[Tensor, ...]:
    entries, deposits = _unknown_size(), _unknown_size()
    hop = col.new_empty(deposits, dtype=torch.int16)
    return (
        torch.empty_like(row_ptr), col.new_empty(entries), row_ptr.new_empty(entries + 1), hop,
        hop.new_empty(deposits, dtype=torch.float32),
    )  # fmt: skip


def _view(
    mask: str, constants: list[Tensor], parameters: list[Tensor], what: str, dtype: torch.dtype
) -> Tensor:
    nodes, heads, entries, counted, per_head, rank = ops.mask_profile(mask)
    rows = 1 if per_head else max([1, *(p.shape[0] for p in parameters)])
    sizes = {"dense": (heads, nodes, nodes), "factors": (2, heads, nodes, rank)}
    size = sizes.get(what) or (rows * (entries if counted else _unknown_size()),)
    return constants[0].new_empty(size, dtype=dtype)


def _pattern(mask: str, constants: list[Tensor], parameters: list[Tensor]) -> list[Tensor]:
    nodes, heads, _, _, per_head, _ = ops.mask_profile(mask)
    tensors = []
    for _ in range(heads if per_head else 1):
        tensors.append(constants[0].new_empty(nodes + 1, dtype=torch.int64))
        tensors.append(constants[0].new_empty(_unknown_size(), dtype=torch.int32))
    return tensors


def _attention(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(v) if v.is_cuda else v.new_empty(v.shape)  # a GPU keeps the order of v in memory


def _attention_forward(q: Tensor, k: Tensor, v: Tensor, mask: str, *others: Any) -> list[Tensor]:
    batch, nodes = (1, q.shape[0]) if q.dim() == 3 else (q.shape[0], q.shape[2])
    shape = [int(size) for size in (q.shape[1], nodes, q.shape[-1], v.shape[-1])]
    saved = ops.attention_saved(mask, shape, q.dtype, q.device, *others[2:5])
    return [
        _attention(q, k, v),
        *(v.new_empty(batch * size[0], *size[1:], dtype=_wide(q)) for size in saved),
    ]


_SHAPES: dict[str, Callable[..., Any]] = {
    "graph_from_edges": _graph_from_edges,
    "graph_from_csr": lambda rows, col, _: (*_graph(rows.shape[0] - 1, col.shape[0], rows.device), _flag()),
    "graph_from_dense": lambda matrix: (*_graph(matrix.shape[0], None, matrix.device), _flag()),
    "grid_graph": lambda extent, diagonals, wrap: _graph(math.prod(extent)),
    "is_symmetric": lambda row_ptr, col, weight: _flag(),
    "knn": lambda points, k, queries, *_: _lists(points, k, queries),
    "radius": lambda points, r, most, queries, *_: _lists(points, most, queries),
    "knn_edges": lambda points, *_: points.new_empty(2, _unknown_size(), dtype=torch.int64),
    "radius_edges": lambda points, *_: points.new_empty(2, _unknown_size(), dtype=torch.int64),
    "batch_ptrs": _batch_ptrs,
    "derive_seeds": lambda seed, count: torch.empty(count, dtype=torch.int64),
    "sample_features": _features,
    "mask_view": _view,
    "mask_pattern": _pattern,
    "attention": _attention,
    "attention_forward": _attention_forward,
}
for _name, _shapes in _SHAPES.items():
    torch.library.register_fake(f"topomask::{_name}", _shapes)
