"""Shapes of the operators for tracing.

The computation and its gradients are in C++ (src/ops). Here torch learns what each operator returns without running
it, so that torch.compile and torch.export can trace through.
"""

from __future__ import annotations

import torch
from torch import Tensor

from topomask._load import load_operators

load_operators()
ops = torch.ops.topomask


def _unknown_size() -> torch.SymInt:
    return torch.library.get_ctx().new_dynamic_size()


def _fake_graph(nodes: int | torch.SymInt, device: torch.device | None = None) -> tuple[Tensor, Tensor, Tensor]:
    entries = _unknown_size()
    return (
        torch.empty(nodes + 1, dtype=torch.int64, device=device),
        torch.empty(entries, dtype=torch.int32, device=device),
        torch.empty(entries, dtype=torch.float32, device=device),
    )


def _fake_flag() -> Tensor:
    return torch.empty((), dtype=torch.bool)


@torch.library.register_fake("topomask::graph_from_edges")
def _(edge_index, edge_weight, num_nodes, undirected, duplicates, self_loops):  # type: ignore[no-untyped-def]
    return (*_fake_graph(num_nodes), _fake_flag())


@torch.library.register_fake("topomask::graph_from_csr")
def _(row_ptr, col, weight):  # type: ignore[no-untyped-def]
    return (
        torch.empty(row_ptr.shape, dtype=torch.int64),
        torch.empty(col.shape, dtype=torch.int32),
        torch.empty(col.shape, dtype=torch.float32),
        _fake_flag(),
    )


@torch.library.register_fake("topomask::graph_from_dense")
def _(adjacency):  # type: ignore[no-untyped-def]
    return (*_fake_graph(adjacency.shape[0]), _fake_flag())


def _fake_lists(points, size, queries):  # type: ignore[no-untyped-def]
    rows = (points if queries is None else queries).shape[0]
    wide = points.dtype if points.dtype == torch.float64 else torch.float32
    return (
        points.new_empty(rows, size, dtype=torch.int32),
        points.new_empty(rows, size, dtype=wide),
        points.new_empty(rows, dtype=torch.int32),
    )


@torch.library.register_fake("topomask::knn")
def _(points, k, queries, *others):  # type: ignore[no-untyped-def]
    return _fake_lists(points, k, queries)


@torch.library.register_fake("topomask::radius")
def _(points, r, max_neighbours, queries, *others):  # type: ignore[no-untyped-def]
    return _fake_lists(points, max_neighbours, queries)


@torch.library.register_fake("topomask::knn_edges")
@torch.library.register_fake("topomask::radius_edges")
def _(points, *others):  # type: ignore[no-untyped-def]
    return points.new_empty(2, _unknown_size(), dtype=torch.int64)


@torch.library.register_fake("topomask::ptr_of_batch")
def _(batch, num_graphs):  # type: ignore[no-untyped-def]
    return batch.new_empty(num_graphs + 1, dtype=torch.int64)


@torch.library.register_fake("topomask::grid_graph")
def _(extent, diagonals, wrap):  # type: ignore[no-untyped-def]
    nodes = 1
    for size in extent:
        nodes = nodes * size
    return _fake_graph(nodes)


@torch.library.register_fake("topomask::normalise")
def _(row_ptr, col, weight, directed, how):  # type: ignore[no-untyped-def]
    return torch.empty_like(weight)


@torch.library.register_fake("topomask::transpose_graph")
def _(row_ptr, col, weight):  # type: ignore[no-untyped-def]
    return torch.empty_like(row_ptr), torch.empty_like(col), torch.empty_like(weight)


@torch.library.register_fake("topomask::is_symmetric")
def _(row_ptr, col, weight):  # type: ignore[no-untyped-def]
    return _fake_flag()


@torch.library.register_fake("topomask::sample_features")
def _(row_ptr, col, weight, *options):  # type: ignore[no-untyped-def]
    nnz, deposits = _unknown_size(), _unknown_size()
    return (
        torch.empty_like(row_ptr),
        col.new_empty(nnz),
        row_ptr.new_empty(nnz + 1),
        col.new_empty(deposits, dtype=torch.int16),
        col.new_empty(deposits, dtype=torch.float32),
    )


@torch.library.register_fake("topomask::sample_walks")
def _(row_ptr, col, weight, num_walks, max_hops, *options):  # type: ignore[no-untyped-def]
    return col.new_empty(row_ptr.shape[0] - 1, num_walks, max_hops + 1)


@torch.library.register_fake("topomask::derive_seeds")
def _(seed, count):  # type: ignore[no-untyped-def]
    return torch.empty(count, dtype=torch.int64)


@torch.library.register_fake("topomask::exact_kernel")
def _(row_ptr, col, weight, directed, kernel):  # type: ignore[no-untyped-def]
    nodes = row_ptr.shape[0] - 1
    return row_ptr.new_empty(nodes, nodes, dtype=torch.float64)


@torch.library.register_fake("topomask::modulate")
def _(f, deposit_ptr, hop, load):  # type: ignore[no-untyped-def]
    return f.new_empty(f.shape[0], deposit_ptr.shape[0] - 1)


@torch.library.register_fake("topomask::modulate_backward")
def _(grad, f, deposit_ptr, hop, load):  # type: ignore[no-untyped-def]
    return f.new_empty(f.shape)


@torch.library.register_fake("topomask::mask_multiply")
def _(mask, constants, parameters, x, transposed):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape)


@torch.library.register_fake("topomask::mask_view")
def _(mask, constants, parameters, what, dtype):  # type: ignore[no-untyped-def]
    nodes, heads, entries, counted, per_head, rank = ops.mask_profile(mask)
    sizes = {"dense": (heads, nodes, nodes), "factors": (2, heads, nodes, rank)}
    if what == "values":
        rows = 1 if per_head else max([1, *(p.shape[0] for p in parameters)])
        return constants[0].new_empty(rows * (entries if counted else _unknown_size()), dtype=dtype)
    return constants[0].new_empty(sizes[what], dtype=dtype)


@torch.library.register_fake("topomask::mask_pattern")
def _(mask, constants, parameters):  # type: ignore[no-untyped-def]
    nodes, heads, _, _, per_head, _ = ops.mask_profile(mask)
    tensors = []
    for _ in range(heads if per_head else 1):
        tensors.append(constants[0].new_empty(nodes + 1, dtype=torch.int64))
        tensors.append(constants[0].new_empty(_unknown_size(), dtype=torch.int32))
    return tensors


@torch.library.register_fake("topomask::attention")
def _(q, k, v, *others):  # type: ignore[no-untyped-def]
    return torch.empty_like(v) if v.is_cuda else v.new_empty(v.shape)  # a GPU keeps the order of v in memory


def _fake_gradients(inputs: list[Tensor], needs: list[int]) -> list[Tensor]:
    """One for each tensor; empty for those that need none."""
    return [x.new_empty(x.shape if need else 0) for x, need in zip(inputs, needs, strict=True)]


@torch.library.register_fake("topomask::attention_forward")
def _(q, k, v, mask, constants, parameters, kind, feature_map, engine, *others):  # type: ignore[no-untyped-def]
    out = torch.empty_like(v) if v.is_cuda else v.new_empty(v.shape)
    batch, nodes = (1, q.shape[0]) if q.dim() == 3 else (q.shape[0], q.shape[2])
    shape = [int(size) for size in (q.shape[1], nodes, q.shape[-1], v.shape[-1])]
    saved = ops.attention_saved(mask, shape, q.dtype, q.device, kind, feature_map, engine)
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    # Each begins with 1 where the first size is that of one batch entry.
    rows = ((batch * first if per_entry else first, *rest) for per_entry, first, *rest in saved)
    return [out, *(v.new_empty(size, dtype=wide) for size in rows)]


@torch.library.register_fake("topomask::attention_backward")
def _(grad, q, k, v, mask, constants, parameters, *others):  # type: ignore[no-untyped-def]
    return _fake_gradients([q, k, v, *parameters], others[-1])


@torch.library.register_fake("topomask::mask_multiply_backward")
def _(grad, mask, constants, parameters, x, transposed, needs):  # type: ignore[no-untyped-def]
    return _fake_gradients([x, *parameters], needs)


@torch.library.register_fake("topomask::mask_view_backward")
def _(grad, mask, constants, parameters, what, dtype, needs):  # type: ignore[no-untyped-def]
    return _fake_gradients(list(parameters), needs)
