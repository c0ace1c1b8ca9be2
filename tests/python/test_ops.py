"""Every operator: its schema, its shapes for tracing, its gradients, and its errors."""

import pytest
import topomask
import torch
from topomask._ops import make_pattern, ops
from torch.autograd import gradcheck

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
    return left, right, list(ops.product_pattern(left, right))


def real(*shape: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def samples() -> dict[str, tuple]:
    graph = small_graph()
    rows = (graph.row_ptr, graph.col, graph.weight)
    features = topomask.sample_walk_features(graph, 6, 3)
    deposits = (features.deposit_ptr, features.hop, features.load)
    query, key, product = patterns()
    nq, nk, np_ = (p[1].shape[0] for p in (query, key, product))
    q, k, v = real(2, 2, 6, 3), real(2, 2, 6, 3), real(2, 2, 6, 4)
    m, left, right, matrix = real(2, np_), real(2, nq), real(2, nk), real(2, 6, 6)
    grad = real(2, 2, 6, 4, grad=False)
    fixed = [x.detach() for x in (q, k, v)]
    tree = topomask.Graph.load("tree:2")
    forest = (tree.row_ptr, tree.col, tree.weight, False)
    cube = topomask.Graph.load("hypercube:2")
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
        "modulate_backward": (real(2, features.col.shape[0], grad=False), real(2, 3, grad=False), *deposits),
        "transpose_pattern": (features.row_ptr, features.col),
        "product_pattern": (query, key),
        "estimate_product_nnz": (query, key, 3),
        "merge_patterns": ([query[0], key[0]], [query[1], key[1]], [0, 6], 12),
        "sparse_matmul": (left, real(2, 6, 3), query, True),
        "sparse_matmul_backward": (
            real(2, 6, 3, grad=False), left.detach(), real(2, 6, 3, grad=False), query, True, [True, False],
        ),
        "write_out": (left, query),
        "write_out_backward": (real(2, 6, 6, grad=False), left.detach(), query),
        "sparse_product": (left, right, query, key, product),
        "sparse_product_backward": (
            real(2, np_, grad=False), left.detach(), right.detach(), query, key, product, [True, True],
        ),
        "forest_product": (real(2, 7, 3), real(2), *forest),
        "forest_product_backward": (
            real(2, 7, 3, grad=False), real(2, 7, 3, grad=False), real(2, grad=False), *forest, [True, True],
        ),
        "hypercube_heat": (real(2, 8, 3), real(2), 3),
        "hypercube_heat_backward": (
            real(2, 8, 3, grad=False), real(2, 8, 3, grad=False), real(2, grad=False), 3, [False, True],
        ),
        "check_hypercube": (cube.row_ptr, cube.col),
        "hop_distances": (*rows[:2], 2, 100),
        "spe_noise": (2, 5, 3, 7),
        "favor_projection": (5, 3, 1, torch.float32, torch.device("cpu")),
        "mask_attention": (q, k, v, m, product, "softmax", 0.0, 1e-20),
        "mask_attention_backward": (
            grad, *fixed, m.detach(), product, "relu", 1e-3, 1e-20, [True, True, False, True],
        ),
        "feature_attention": (q, k, v, left, right, query, key, 1e-20, 2**31),
        "feature_attention_backward": (
            grad, *fixed, left.detach(), right.detach(), query, key, 1e-20, 2**31, [True] * 5,
        ),
        "dense_attention": (q, k, v, matrix, "softmax", 0.0, 1e-20, 2**31),
        "dense_attention_backward": (
            grad, *fixed, matrix.detach(), "relu", 1e-3, 1e-20, 2**31, [True, False, True, True],
        ),
    }  # fmt: skip


SAMPLES = samples()


def test_every_operator_has_a_sample() -> None:
    names = {
        name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("topomask::")
    }
    assert names - {"plan_attention", "cuda_is_built"} == set(SAMPLES)  # these return no tensors to trace


@pytest.mark.parametrize("name", SAMPLES)
def test_opcheck(name: str) -> None:
    torch.library.opcheck(getattr(ops, name).default, SAMPLES[name])


PRODUCTS = ["modulate", "sparse_matmul", "write_out", "sparse_product", "forest_product", "hypercube_heat"]


@pytest.mark.parametrize("name", PRODUCTS)
def test_gradients_of_products(name: str) -> None:
    assert gradcheck(getattr(ops, name), SAMPLES[name])


def test_gradients_of_a_square() -> None:
    query = patterns()[0]
    product = list(ops.product_pattern(query, query))
    values = real(2, query[1].shape[0])
    grad = real(2, product[1].shape[0], grad=False)

    def square(x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return ops.sparse_product(x, y, query, query, product)

    assert gradcheck(lambda x: square(x, x), (values,))
    (whole,) = torch.autograd.grad(square(values, values), values, grad)
    halves = ops.sparse_product_backward(grad, values, values, query, query, product, [True, True])
    torch.testing.assert_close(whole, halves[0] + halves[1])
    compiled = torch.compile(square, fullgraph=True, backend="aot_eager")
    torch.testing.assert_close(torch.autograd.grad(compiled(values, values), values, grad)[0], whole)
    (one,) = torch.autograd.grad(square(values, values.detach()), values, grad)  # alone it is one half
    torch.testing.assert_close(one, halves[0])


def positive(*shape: int) -> torch.Tensor:
    """Positive features and values keep the normaliser away from zero."""
    return (torch.rand(*shape, dtype=torch.float64) + 0.1).requires_grad_()


@pytest.mark.parametrize("scores", ["features", "relu", "softmax"])
@pytest.mark.parametrize("heads", [1, 2])
def test_gradients_of_attention(scores: str, heads: int) -> None:
    query, key, product = patterns()
    q, k, v = (positive(2, 2, 6, 3) for _ in range(3))
    m = positive(heads, product[1].shape[0])
    assert gradcheck(lambda *x: ops.mask_attention(*x, product, scores, 1e-3, 1e-20), (q, k, v, m))
    matrix = positive(heads, 6, 6)
    assert gradcheck(lambda *x: ops.dense_attention(*x, scores, 1e-3, 1e-20, 2**31), (q, k, v, matrix))
    if scores == "features":
        left, right = positive(heads, query[1].shape[0]), positive(heads, key[1].shape[0])
        assert gradcheck(
            lambda *x: ops.feature_attention(*x, query, key, 1e-20, 2**31), (q, k, v, left, right)
        )


def test_gradients_are_those_of_the_backward_operator() -> None:
    """While tracing, the gradient is an operator of its own; on plain tensors it is the library's graph."""
    product = patterns()[2]
    inputs = [positive(1, 2, 6, 3), positive(1, 2, 6, 3), positive(1, 2, 6, 4), positive(2, product[1].shape[0])]
    options = (product, "relu", 1e-3, 1e-20)
    out = ops.mask_attention(*inputs, *options)
    grad = torch.randn_like(out)
    expected = torch.autograd.grad(out, inputs, grad, retain_graph=True)
    again = torch.autograd.grad(out, inputs, grad)
    got = ops.mask_attention_backward(grad, *(x.detach() for x in inputs), *options, [True, True, True, True])
    for a, b, c in zip(expected, again, got):
        assert torch.equal(a, b) and torch.equal(a, c)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out, inputs, grad)
    some = ops.mask_attention_backward(grad, *(x.detach() for x in inputs), *options, [False, True, False, False])
    assert some[0].numel() == 0 and torch.equal(some[1], expected[1])


def test_second_derivative_is_refused() -> None:
    product = patterns()[2]
    q, m = real(1, 1, 6, 3), real(1, product[1].shape[0])
    out = ops.mask_attention(q, q, q, m, product, "softmax", 0.0, 1e-20)
    (grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises((ValueError, RuntimeError), match="differentiable once"):
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
    q, m, product = real(1, 1, 6, 3), real(1, 4), patterns()[2]
    values = real(1, product[1].shape[0])
    with pytest.raises(ValueError, match="q and k must have one dtype, got Double and Float"):
        ops.mask_attention(q, q.float(), q, values, product, "relu", 0.0, 0.0)
    with pytest.raises(ValueError, match="q and values must have one dtype"):
        ops.mask_attention(q, q, q, values.float(), product, "relu", 0.0, 0.0)
    with pytest.raises(ValueError, match="values must be float32 or float64"):
        ops.mask_attention(q, q, q, m, product, "relu", 0.0, 0.0)
    with pytest.raises(ValueError, match="scores: unknown value 'rlu', did you mean 'relu'?"):
        ops.mask_attention(q, q, q, values, product, "rlu", 0.0, 0.0)
    with pytest.raises(ValueError, match="columns"):
        ops.transpose_pattern(torch.tensor([0, 2, 2]), torch.tensor([1, 0], dtype=torch.int32))
