"""Every operator: its schema, its shapes for tracing, its gradients, and its errors."""

import pytest
import topomask
import torch
from topomask._ops import make_pattern, ops
from torch.autograd import gradcheck, gradgradcheck

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0, 4], [1, 0, 2, 1, 3, 2, 0, 3, 4]])
WALKS = (6, 3, "geometric", 0.3, [], "uniform", "independent")


def small_graph() -> topomask.Graph:
    return topomask.Graph.from_edge_index(EDGES, 6).normalised()


def patterns() -> tuple[list[torch.Tensor], list[torch.Tensor], list[torch.Tensor]]:
    graph = small_graph()
    query, key = (
        topomask.sample_walk_features(graph, 4, 2, ensemble=ensemble, seed=3) for ensemble in (0, 1)
    )
    left, right = make_pattern(query.row_ptr, query.col), make_pattern(key.row_ptr, key.col)
    return left, right, make_pattern(*ops.product_pattern(left, right))


def real(*shape: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def samples() -> dict[str, tuple]:
    graph = small_graph()
    rows = (graph.row_ptr, graph.col, graph.weight)
    features = topomask.sample_walk_features(graph, 6, 3)
    deposits = (features.deposit_ptr, features.hop, features.load)
    query, key, product = patterns()
    nq, nk, np_ = (p[1].shape[0] for p in (query, key, product))
    q, k, v, m = real(2, 2, 6, 3), real(2, 2, 6, 3), real(2, 2, 6, 4), real(2, np_)
    attended = ops.mask_attention(q, k, v, m, product, True, 0.5, 1e-20, True)
    saved = [x.detach() for x in (q, k, v, m, *attended)]
    return {
        "graph_from_edges": (EDGES, torch.ones(9), 6, False, "drop", "keep"),
        "graph_from_csr": rows,
        "graph_from_dense": (graph.to_dense(),),
        "load_graph": ("cycle:5",),
        "knn_graph": (torch.rand(10, 2), 2, True),
        "grid_graph": ([2, 3], False, False),
        "normalise": (*rows, False, "random-walk"),
        "transpose_graph": rows,
        "is_symmetric": rows,
        "neighbour_pattern": (*rows[:2], 2, True),
        "sample_features": (*rows, *WALKS, True, 5, 0),
        "sample_walks": (*rows, *WALKS, 5, 0),
        "derive_seeds": (5, 3),
        "kernel_series": ("diffusion:sigma2=1", 4, True),
        "exact_kernel": (*rows, False, "diffusion:sigma2=1"),
        "modulate": (real(2, 3), *deposits),
        "modulate_backward": (real(2, features.col.shape[0]), *deposits, 3),
        "transpose_pattern": (features.row_ptr, features.col),
        "product_pattern": (query, key),
        "estimate_product_nnz": (query, key, 3),
        "sparse_matmul": (real(2, nq), real(2, 6, 3), query, True),
        "sampled_dots": (real(2, 6, 3), real(2, 6, 3), query, False, 1),
        "sparse_product": (real(2, nq), real(2, nk), query, key, product),
        "sparse_product_backward": (
            real(2, np_, grad=False), real(2, nq, grad=False), real(2, nk, grad=False), query, key, product,
        ),
        "favor_projection": (5, 3, 1),
        "mask_attention": (q, k, v, m, product, False, 1.0, 1e-20, True),
        "mask_attention_backward": (real(2, 2, 6, 4, grad=False), *saved, product, True, 0.5, 1e-20),
    }  # fmt: skip


SAMPLES = samples()


def test_every_operator_has_a_sample() -> None:
    names = {
        name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("topomask::")
    }
    assert names == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_opcheck(name: str) -> None:
    torch.library.opcheck(getattr(ops, name).default, SAMPLES[name])


def test_gradients_of_modulate_and_sparse_products() -> None:
    for name in ("modulate", "sparse_matmul", "sampled_dots"):
        op, args = getattr(ops, name), SAMPLES[name]
        assert gradcheck(op, args)
        assert gradgradcheck(op, args)
    assert gradcheck(ops.sparse_product, SAMPLES["sparse_product"])


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("value_heads", [1, 2])
def test_gradients_of_attention(softmax: bool, value_heads: int) -> None:
    product = patterns()[2]
    # Positive features and values keep the normaliser away from zero.
    q, k, v = ((real(2, 2, 6, 3, grad=False).abs() + 0.1).requires_grad_() for _ in range(3))
    m = (torch.rand(value_heads, product[1].shape[0], dtype=torch.float64) + 0.1).requires_grad_()
    assert gradcheck(lambda *x: ops.mask_attention(*x, product, softmax, 0.7, 1e-20, True)[0], (q, k, v, m))


def test_second_derivative_is_refused() -> None:
    product = patterns()[2]
    q, m = real(1, 1, 6, 3), real(1, product[1].shape[0])
    out = ops.mask_attention(q, q, q, m, product, True, 1.0, 1e-20, True)[0]
    (grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises(RuntimeError, match="differentiable once"):
        grad.sum().backward()


def test_errors_are_the_sentences_of_the_library() -> None:
    graph = small_graph()
    rows = (graph.row_ptr, graph.col, graph.weight)
    query, key, _ = patterns()
    with pytest.raises(ValueError, match="coupling: unknown value 'repeling', did you mean 'repelling'?"):
        ops.sample_features(*rows, 4, 2, "geometric", 0.5, [], "uniform", "repeling", True, 0, 0)
    with pytest.raises(ValueError, match="p_halt must be between 0 and 1, got 1.5"):
        ops.sample_features(*rows, 4, 2, "geometric", 1.5, [], "uniform", "both", True, 0, 0)
    with pytest.raises(ValueError, match="expected columns from 0 to 5, got 77 at entry 0"):
        ops.sample_features(graph.row_ptr, torch.full_like(graph.col, 77), graph.weight, *WALKS, True, 0, 0)
    with pytest.raises(ValueError, match="nodes from 0 to 2, got 3 at edge 5"):
        ops.graph_from_edges(EDGES, None, 3, False, "drop", "keep")
    with pytest.raises(ValueError, match="must be a pattern of 5 tensors"):
        ops.product_pattern(query[:3], key)
    with pytest.raises(ValueError, match="x must be float32 or float64"):
        ops.sparse_matmul(torch.ones(1, query[1].shape[0]), torch.ones(1, 5, 2), query, False)
    with pytest.raises(ValueError, match="one dtype"):
        ops.sparse_matmul(torch.ones(1, query[1].shape[0]), real(1, 6, 2), query, False)
    with pytest.raises(ValueError, match="columns"):
        ops.transpose_pattern(torch.tensor([0, 2, 2]), torch.tensor([1, 0], dtype=torch.int32))
