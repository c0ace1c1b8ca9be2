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

Pattern = list[Tensor]
"""row_ptr [N+1] int64, col [nnz] int32, and the transpose: ptr [N+1] int64, row [nnz] int32, entry [nnz] int64."""


def make_pattern(row_ptr: Tensor, col: Tensor) -> Pattern:
    """A pattern from its rows; columns must ascend within a row."""
    return [row_ptr, col, *ops.transpose_pattern(row_ptr, col)]


def _unknown_size() -> torch.SymInt:
    return torch.library.get_ctx().new_dynamic_size()


def _fake_graph(num_offsets: int | torch.SymInt) -> tuple[Tensor, Tensor, Tensor]:
    entries = _unknown_size()
    return (
        torch.empty(num_offsets, dtype=torch.int64),
        torch.empty(entries, dtype=torch.int32),
        torch.empty(entries, dtype=torch.float32),
    )


def _fake_flag() -> Tensor:
    return torch.empty((), dtype=torch.bool)


@torch.library.register_fake("topomask::graph_from_edges")
def _(edge_index, edge_weight, num_nodes, undirected, duplicates, self_loops):  # type: ignore[no-untyped-def]
    return (*_fake_graph(num_nodes + 1), _fake_flag())


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
    return (*_fake_graph(adjacency.shape[0] + 1), _fake_flag())


@torch.library.register_fake("topomask::load_graph")
def _(spec):  # type: ignore[no-untyped-def]
    return (*_fake_graph(_unknown_size()), _fake_flag())


@torch.library.register_fake("topomask::knn_graph")
def _(points, k, symmetric):  # type: ignore[no-untyped-def]
    return _fake_graph(points.shape[0] + 1)


@torch.library.register_fake("topomask::grid_graph")
def _(extent, diagonals, wrap):  # type: ignore[no-untyped-def]
    nodes = 1
    for size in extent:
        nodes = nodes * size
    return _fake_graph(nodes + 1)


@torch.library.register_fake("topomask::normalise")
def _(row_ptr, col, weight, directed, how):  # type: ignore[no-untyped-def]
    return torch.empty_like(weight)


@torch.library.register_fake("topomask::transpose_graph")
def _(row_ptr, col, weight):  # type: ignore[no-untyped-def]
    return torch.empty_like(row_ptr), torch.empty_like(col), torch.empty_like(weight)


@torch.library.register_fake("topomask::is_symmetric")
def _(row_ptr, col, weight):  # type: ignore[no-untyped-def]
    return _fake_flag()


@torch.library.register_fake("topomask::neighbour_pattern")
def _(row_ptr, col, hops, include_self):  # type: ignore[no-untyped-def]
    return torch.empty_like(row_ptr), col.new_empty(_unknown_size())


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


@torch.library.register_fake("topomask::kernel_series")
def _(kernel, max_power, modulation):  # type: ignore[no-untyped-def]
    return torch.empty(max_power + 1, dtype=torch.float64)


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


@torch.library.register_fake("topomask::transpose_pattern")
def _(row_ptr, col):  # type: ignore[no-untyped-def]
    return torch.empty_like(row_ptr), torch.empty_like(col), row_ptr.new_empty(col.shape[0])


@torch.library.register_fake("topomask::product_pattern")
def _(query, key):  # type: ignore[no-untyped-def]
    offsets, col = query[:2]
    nnz = _unknown_size()
    return (
        torch.empty_like(offsets),
        col.new_empty(nnz),
        torch.empty_like(offsets),
        col.new_empty(nnz),
        offsets.new_empty(nnz),
    )


@torch.library.register_fake("topomask::estimate_product_nnz")
def _(query, key, sample):  # type: ignore[no-untyped-def]
    return query[0].new_empty((), dtype=torch.float64)


@torch.library.register_fake("topomask::merge_patterns")
def _(row_ptrs, cols, offsets, num_nodes):  # type: ignore[no-untyped-def]
    return (
        row_ptrs[0].new_empty(num_nodes + 1),
        cols[0].new_empty(_unknown_size()),
        row_ptrs[0].new_empty(sum(col.shape[0] for col in cols)),
    )


@torch.library.register_fake("topomask::sparse_matmul")
def _(values, x, pattern, transposed):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape)


@torch.library.register_fake("topomask::write_out")
def _(values, pattern):  # type: ignore[no-untyped-def]
    nodes = pattern[0].shape[0] - 1
    return values.new_empty(values.shape[0], nodes, nodes)


@torch.library.register_fake("topomask::write_out_backward")
def _(grad, values, pattern):  # type: ignore[no-untyped-def]
    return values.new_empty(values.shape)


@torch.library.register_fake("topomask::sparse_product")
def _(query_values, key_values, query, key, product):  # type: ignore[no-untyped-def]
    return query_values.new_empty(query_values.shape[0], product[1].shape[0])


@torch.library.register_fake("topomask::forest_product")
def _(x, a, row_ptr, col, weight, weighted):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape)


@torch.library.register_fake("topomask::hypercube_heat")
def _(x, t, dimension):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape)


@torch.library.register_fake("topomask::check_hypercube")
def _(row_ptr, col):  # type: ignore[no-untyped-def]
    return torch.empty((), dtype=torch.int64)


@torch.library.register_fake("topomask::hop_distances")
def _(row_ptr, col, max_distance, max_bytes):  # type: ignore[no-untyped-def]
    nodes = row_ptr.shape[0] - 1
    return row_ptr.new_empty(nodes, nodes, dtype=torch.uint8)


@torch.library.register_fake("topomask::spe_noise")
def _(heads, rows, realisations, seed):  # type: ignore[no-untyped-def]
    return torch.empty(heads, rows, realisations, dtype=torch.float64)


@torch.library.register_fake("topomask::favor_projection")
def _(num_features, d, seed, dtype, device):  # type: ignore[no-untyped-def]
    return torch.empty(num_features, d, dtype=dtype, device=device)


@torch.library.register_fake("topomask::feature_attention")
def _(q, k, v, *others):  # type: ignore[no-untyped-def]
    return v.new_empty(v.shape)


@torch.library.register_fake("topomask::mask_attention")
@torch.library.register_fake("topomask::dense_attention")
def _(q, k, v, *others):  # type: ignore[no-untyped-def]
    return torch.empty_like(v) if v.is_cuda else v.new_empty(v.shape)  # a GPU keeps the order of v in memory


def _fake_gradients(grad, *arguments):  # type: ignore[no-untyped-def]
    """One for each of the first tensors; empty for those that need none."""
    needs = arguments[-1]
    return tuple(x.new_empty(x.shape if need else 0) for x, need in zip(arguments, needs))


for _name in (
    "sparse_matmul",
    "sparse_product",
    "forest_product",
    "hypercube_heat",
    "mask_attention",
    "feature_attention",
    "dense_attention",
):
    torch.library.register_fake(f"topomask::{_name}_backward", _fake_gradients)
