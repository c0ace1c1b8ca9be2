"""Shapes of the operators for tracing, and their gradients.

The computation is in C++ (src/ops). Here torch learns what each operator returns without running it, so that
torch.compile and torch.export can trace through, and which operator computes each gradient.
"""

from __future__ import annotations

from typing import Any

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
def _(grad, deposit_ptr, hop, load, terms):  # type: ignore[no-untyped-def]
    return grad.new_empty(grad.shape[0], terms)


@torch.library.register_fake("topomask::transpose_pattern")
def _(row_ptr, col):  # type: ignore[no-untyped-def]
    return torch.empty_like(row_ptr), torch.empty_like(col), row_ptr.new_empty(col.shape[0])


@torch.library.register_fake("topomask::product_pattern")
def _(query, key):  # type: ignore[no-untyped-def]
    return torch.empty_like(query[0]), query[1].new_empty(_unknown_size())


@torch.library.register_fake("topomask::estimate_product_nnz")
def _(query, key, sample):  # type: ignore[no-untyped-def]
    return query[0].new_empty((), dtype=torch.float64)


@torch.library.register_fake("topomask::sparse_matmul")
def _(values, x, pattern, transposed):  # type: ignore[no-untyped-def]
    return x.new_empty(x.shape)


@torch.library.register_fake("topomask::sampled_dots")
def _(left, right, pattern, transposed, heads):  # type: ignore[no-untyped-def]
    return left.new_empty(heads, pattern[1].shape[0])


@torch.library.register_fake("topomask::sparse_product")
def _(query_values, key_values, query, key, product):  # type: ignore[no-untyped-def]
    return query_values.new_empty(query_values.shape[0], product[1].shape[0])


@torch.library.register_fake("topomask::sparse_product_backward")
def _(grad, query_values, key_values, query, key, product):  # type: ignore[no-untyped-def]
    return query_values.new_empty(query_values.shape), key_values.new_empty(key_values.shape)


@torch.library.register_fake("topomask::favor_projection")
def _(num_features, d, seed):  # type: ignore[no-untyped-def]
    return torch.empty(num_features, d, dtype=torch.float64)


@torch.library.register_fake("topomask::mask_attention")
def _(q, k, v, values, pattern, softmax, scale, guard, keep_dots):  # type: ignore[no-untyped-def]
    batch, heads, n = q.shape[:3]
    return (
        v.new_empty(v.shape),
        v.new_empty(batch, heads, n),
        v.new_empty(batch, heads, n if softmax else 0),
        v.new_empty(batch, heads, pattern[1].shape[0] if keep_dots else 0),
    )


@torch.library.register_fake("topomask::mask_attention_backward")
def _(grad, q, k, v, values, *others):  # type: ignore[no-untyped-def]
    return tuple(x.new_empty(x.shape) for x in (q, k, v, values))


_NO_PATTERN = [None] * 5


def _modulate_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    f, deposit_ptr, hop, load = inputs
    ctx.save_for_backward(deposit_ptr, hop, load)
    ctx.terms = f.shape[1]


def _modulate_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return ops.modulate_backward(grad, *ctx.saved_tensors, ctx.terms), None, None, None


def _modulate_backward_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    ctx.save_for_backward(*inputs[1:4])


def _modulate_backward_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    return ops.modulate(grad, *ctx.saved_tensors), None, None, None, None


def _sparse_matmul_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    values, x, pattern, ctx.transposed = inputs
    ctx.save_for_backward(values, x, *pattern)


def _sparse_matmul_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    values, x, *pattern = ctx.saved_tensors
    grad_values = grad_x = None
    if ctx.needs_input_grad[0]:
        grad_values = ops.sampled_dots(grad, x, pattern, ctx.transposed, values.shape[0])
    if ctx.needs_input_grad[1]:
        grad_x = ops.sparse_matmul(values, grad, pattern, not ctx.transposed)
    return grad_values, grad_x, _NO_PATTERN, None


def _sampled_dots_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    left, right, pattern, ctx.transposed, _ = inputs
    ctx.save_for_backward(left, right, *pattern)


def _sampled_dots_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    left, right, *pattern = ctx.saved_tensors
    return (
        ops.sparse_matmul(grad, right, pattern, ctx.transposed),
        ops.sparse_matmul(grad, left, pattern, not ctx.transposed),
        _NO_PATTERN,
        None,
        None,
    )


def _sparse_product_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    query_values, key_values, query, key, product = inputs
    ctx.save_for_backward(query_values, key_values, *query, *key, *product)


def _sparse_product_grad(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    query_values, key_values, *patterns = ctx.saved_tensors
    grads = ops.sparse_product_backward(
        grad, query_values, key_values, patterns[:5], patterns[5:10], patterns[10:]
    )
    return *grads, _NO_PATTERN, _NO_PATTERN, _NO_PATTERN


def _mask_attention_setup(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    q, k, v, values, pattern, *ctx.options, _ = inputs
    ctx.save_for_backward(q, k, v, values, *output, *pattern)


def _mask_attention_grad(ctx: Any, grad: Tensor, *ignored: Tensor) -> tuple[Any, ...]:
    q, k, v, values, out, inverse, row_max, dots, *pattern = ctx.saved_tensors
    grads = ops.mask_attention_backward(
        grad, q, k, v, values, out, inverse, row_max, dots, pattern, *ctx.options
    )
    return *grads, _NO_PATTERN, None, None, None, None


def _no_setup(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    pass


def _not_twice(ctx: Any, *grads: Tensor) -> tuple[Any, ...]:
    raise RuntimeError("topomask: attention and sparse products are differentiable once, not twice")


for _name, _grad, _setup in (
    ("modulate", _modulate_grad, _modulate_setup),
    ("modulate_backward", _modulate_backward_grad, _modulate_backward_setup),
    ("sparse_matmul", _sparse_matmul_grad, _sparse_matmul_setup),
    ("sampled_dots", _sampled_dots_grad, _sampled_dots_setup),
    ("sparse_product", _sparse_product_grad, _sparse_product_setup),
    ("mask_attention", _mask_attention_grad, _mask_attention_setup),
    ("sparse_product_backward", _not_twice, _no_setup),
    ("mask_attention_backward", _not_twice, _no_setup),
):
    torch.library.register_autograd(f"topomask::{_name}", _grad, setup_context=_setup)
