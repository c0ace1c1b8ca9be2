"""Every operator: its schema, its shapes for tracing, its gradients, and its errors."""

import json

import pytest
import topomask
import torch
from topomask._ops import ops
from torch.autograd import gradcheck

EDGES = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0, 4], [1, 0, 2, 1, 3, 2, 0, 3, 4]])
WALKS = json.dumps({"num_walks": "6", "max_hops": "3", "p_halt": "0.3", "seed": "5"})
DEFAULTS = (None, None, 0, None, None, False)
"""epsilon, num_features, feature_seed, guard, max_workspace, check_finite"""


def small_graph() -> topomask.Graph:
    return topomask.Graph.from_edge_index(EDGES, 6)


def small_mask(heads: int = 2) -> topomask.GRFMask:
    return topomask.GRFMask(small_graph(), 6, 0.3, 3, heads=heads, seed=3, dtype=torch.float64)


def real(*shape: int, grad: bool = True) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64, requires_grad=grad)


def positive(*shape: int) -> torch.Tensor:
    """Positive features and values keep the normaliser away from zero."""
    return (torch.rand(*shape, dtype=torch.float64) + 0.1).requires_grad_()


def samples() -> dict[str, tuple]:
    graph = small_graph()
    rows = (graph.row_ptr, graph.col, graph.weight)
    features = topomask.sample_walk_features(graph.normalised(), 6, 3)
    deposits = (features.deposit_ptr, features.hop, features.load)
    mask = small_mask()._expression()
    fixed = (mask[0], mask[1], [p.detach() for p in mask[2]])
    q, k, v = positive(2, 2, 6, 3), positive(2, 2, 6, 3), positive(2, 2, 6, 4)
    plain = [x.detach() for x in (q, k, v)]
    grad = real(2, 2, 6, 4, grad=False)
    named = ("linear", "relu", "mask")
    kept = ops.attention_forward(*plain, *fixed, *named, *DEFAULTS)
    ahead = torch.tensor([-1.0, 0.0, 0.0], dtype=torch.float64).expand(2, 3, 3).contiguous()
    rays = (0.05 * real(2, 3, 3, grad=False) - ahead, ahead)
    steps = {"neighbours": 2, "samples": 4, "radii": [0.0], "bandwidths": [0.1], "spacing": 0.05, "cell": 0.1}
    renderer = topomask.nn.ParticleRenderer(2, hidden=3, **steps).double()
    weights = [renderer.get_parameter(name) for name in renderer._call[2]]
    particles = (0.1 * torch.rand(2, 5, 3, dtype=torch.float64)).requires_grad_()
    return {
        "graph_from_edges": (EDGES, torch.ones(9), 6, False, "drop", "keep"),
        "graph_from_csr": rows,
        "graph_from_dense": (graph.to_dense(),),
        "knn": (torch.rand(10, 2), 2, None, None, None, None, None),
        "knn_edges": (torch.rand(10, 2), 2, None, torch.tensor([0, 4, 10]), None, torch.ones(2), None),
        "radius": (torch.rand(10, 2), 0.3, 4, torch.rand(3, 2), None, None, None, None),
        "radius_edges": (torch.rand(10, 2), 0.3, None, None, None, None, None, True),
        "batch_ptrs": (torch.tensor([0, 0, 2]), torch.tensor([1, 1]), True),
        "grid_graph": ([2, 3], False, False),
        "normalise": (*rows, False, "random-walk"),
        "transpose_graph": rows,
        "is_symmetric": rows,
        "sample_features": (*rows, WALKS, 0),
        "sample_walks": (*rows, WALKS),
        "derive_seeds": (5, 3),
        "exact_kernel": (*rows, False, "diffusion:sigma2=1"),
        "modulate": (real(2, 3), *deposits),
        "modulate_backward": (real(2, features.col.shape[0], grad=False), real(2, 3, grad=False), *deposits),
        "mask_multiply": (*mask, real(2, 6, 3), True),
        "mask_multiply_backward": (
            real(2, 6, 3, grad=False), *fixed, real(2, 6, 3, grad=False), False, [1, 1],
        ),
        "mask_view": (*mask, "dense", torch.float64),
        "mask_view_backward": (real(2, 6, 6, grad=False), *fixed, "dense", torch.float64, [1]),
        "mask_pattern": fixed,
        "run_library_module": (*renderer._call, [*weights, particles, real(2, 5, 2), *rays]),
        "run_library_module_backward": (
            real(2, 3, 5, grad=False), *renderer._call,
            [*(w.detach() for w in weights), particles.detach(), real(2, 5, 2, grad=False), *rays], [*([1] * 12), 0, 0],
        ),
        "normalise_images": (torch.ones(2, 3, 4, 4, dtype=torch.uint8), [0.5, 0.4, 0.3], [0.1, 0.2, 0.3]),
        "attention": (q, k, v, *mask, "linear", "relu", "auto", *DEFAULTS),
        "attention_forward": (*plain, *fixed, *named, *DEFAULTS),
        "attention_backward": (grad, *plain, *fixed, kept, *named, *DEFAULTS, [1, 0, 1, 1]),
    }  # fmt: skip


SAMPLES = samples()
# These return words or numbers, make what is traced, or are made of other operators.
UNTRACED = {
    "plan_attention", "plan_ensembles", "attention_saved", "knn_graph", "cuda_is_built", "forget_masks", "option_catalogue", "nearest_or_all", "parse_extent", "mask_profile", "mask_catalogue", "load_graph", "partition_graph",
    "make_mask", "mask_advice", "make_tensor_mask", "load_vit", "combine_masks", "mask_features", "feature_products", "checked_nodes", "csr_attention", "column_operands",
    "column_result", "load_hdvpd", "library_module", "union_graphs",
}  # fmt: skip


def test_every_operator_has_a_sample() -> None:
    names = {
        name.split("::")[1] for name in torch._C._dispatch_get_all_op_names() if name.startswith("topomask::")
    }
    assert names - UNTRACED == set(SAMPLES)


@pytest.mark.parametrize("name", SAMPLES)
def test_opcheck(name: str) -> None:
    torch.library.opcheck(getattr(ops, name).default, SAMPLES[name])


def test_gradients_of_values() -> None:
    assert gradcheck(ops.modulate, SAMPLES["modulate"])
    recipe, constants, (f,) = small_mask()._expression()
    for what in ("dense", "values"):
        assert gradcheck(lambda f, what=what: ops.mask_view(recipe, constants, [f], what, torch.float64), (f,))
    for transposed in (False, True):
        assert gradcheck(
            lambda f, x, t=transposed: ops.mask_multiply(recipe, constants, [f], x, t), (f, real(2, 6, 2))
        )


@pytest.mark.parametrize("engine", ["mask", "dense", "feature"])
@pytest.mark.parametrize("kind", ["linear", "softmax"])
@pytest.mark.parametrize("heads", [1, 2])
def test_gradients_of_attention(engine: str, kind: str, heads: int) -> None:
    if kind == "softmax" and engine == "feature":
        pytest.skip("softmax scores are not a product of features")
    recipe, constants, (f,) = small_mask(heads)._expression()
    q, k, v = (positive(2, 2, 6, 3) for _ in range(3))

    def attend(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, f: torch.Tensor) -> torch.Tensor:
        return ops.attention(q, k, v, recipe, constants, [f], kind, "relu", engine, *DEFAULTS)

    assert gradcheck(attend, (q, k, v, f))
    # While tracing, the gradient is an operator of its own; on plain tensors it is the library's graph.
    out = attend(q, k, v, f)
    grad = torch.randn_like(out)
    expected = torch.autograd.grad(out, (q, k, v, f), grad, retain_graph=True)
    again = torch.autograd.grad(out, (q, k, v, f), grad)
    compiled = torch.compile(attend, fullgraph=True, backend="aot_eager")
    traced = torch.autograd.grad(compiled(q, k, v, f), (q, k, v, f), grad)
    for a, b, c in zip(expected, again, traced, strict=True):
        assert torch.equal(a, b)
        torch.testing.assert_close(a, c)
    with pytest.raises(RuntimeError, match="second time"):
        torch.autograd.grad(out, (q, k, v, f), grad)


def test_the_backward_operator_needs_no_forward_pass() -> None:
    """attention_forward keeps what the backward pass needs, and a tracer knows its shapes."""
    recipe, constants, (f,) = small_mask()._expression()
    q, k, v = (positive(2, 2, 6, 3).detach() for _ in range(3))
    for kind in ("linear", "softmax"):
        for engine in ("mask", "dense"):
            result = ops.attention_forward(q, k, v, recipe, constants, [f.detach()], kind, "relu", engine, *DEFAULTS)
            sizes = ops.attention_saved(recipe, [2, 6, 3, 3], q.dtype, q.device, kind, "relu", engine)
            assert len(result) == 1 + len(sizes) > 1
            for tensor, (per_entry, first, *rest) in zip(result[1:], sizes, strict=True):
                assert list(tensor.shape) == [2 * first if per_entry else first, *rest]
    assert len(ops.attention_forward(q, k, v, recipe, constants, [f.detach()], "linear", "elu1", "mask", *DEFAULTS)) == 1


def test_second_derivative_is_refused() -> None:
    recipe, constants, (f,) = small_mask()._expression()
    q = positive(1, 2, 6, 3)
    out = ops.attention(q, q, q, recipe, constants, [f], "softmax", "relu", "auto", *DEFAULTS)
    (grad,) = torch.autograd.grad(out.sum(), q, create_graph=True)
    with pytest.raises((ValueError, RuntimeError), match="differentiable once"):
        grad.sum().backward()


def test_csr_attention() -> None:
    """A pattern with weights or biases against the formula, and its gradients."""
    graph = small_graph()
    csr = (graph.row_ptr, graph.col)
    nnz = graph.num_entries
    q, k, v = (positive(1, 2, 6, 3) for _ in range(3))
    pattern = graph.to_dense() != 0

    def dense(values: torch.Tensor) -> torch.Tensor:
        rows = torch.repeat_interleave(torch.arange(6), graph.row_ptr.diff())
        return torch.zeros(values.shape[0], 6, 6, dtype=values.dtype).index_put(
            (torch.arange(values.shape[0])[:, None], rows[None], graph.col.long()[None]), values
        )

    for heads in (1, 2):
        bias = real(heads, nnz)
        scores = (q @ k.mT / 3**0.5 + dense(bias)).masked_fill(~pattern, -torch.inf)
        expected = scores.softmax(-1).nan_to_num(0) @ v
        out = topomask.attention(q, k, v, csr=csr, bias=bias, kind="softmax")
        torch.testing.assert_close(out, expected)
        large = topomask.attention(q, k, v, csr=csr, bias=bias + 1000, kind="softmax")
        torch.testing.assert_close(large, expected)
        assert gradcheck(lambda q, b: topomask.attention(q, k, v, csr=csr, bias=b, kind="softmax"), (q, bias))
        weight = positive(heads, nnz)
        weights = dense(weight) * ((q.relu() + 1e-3) @ (k.relu() + 1e-3).mT)
        total = weights.sum(-1, keepdim=True)
        expected = (weights / total.masked_fill(total == 0, 1)) @ v
        torch.testing.assert_close(topomask.attention(q, k, v, csr=csr, weight=weight), expected)
        assert gradcheck(lambda k, w: topomask.attention(q, k, v, csr=csr, weight=w), (k, weight))
    torch.testing.assert_close(
        topomask.attention(q, k, v, csr=csr), topomask.attention(q, k, v, csr=csr, weight=torch.ones(nnz))
    )
    for options, message in (
        ({"bias": real(nnz)}, "kind='softmax' a bias"),
        ({"weight": real(3)}, "weight must be real \\[9\\]"),
        ({"mask": small_mask()}, "two ways to say the same"),
    ):
        with pytest.raises(ValueError, match=message):
            topomask.attention(q, k, v, csr=csr, **options)
    with pytest.raises(ValueError, match="a column is out of range"):
        topomask.attention(q, k, v, csr=(torch.arange(7), torch.full((6,), 9)))
    for bad in ([0, 1, 2, 3, 4, 5, 9], [0, 1, 2, 3, 4, 5, 5], [0, 3, 1, 3, 4, 5, 6]):
        with pytest.raises(ValueError, match="row_ptr of csr must ascend from 0 to the 6 entries of col"):
            topomask.attention(q, k, v, csr=(torch.tensor(bad), torch.arange(6)), bias=torch.zeros(6), kind="softmax")
    for wrapped in (2**32 + 1, -(2**32) + 1, 2**63 - 1):  # 1 in 32 bits
        with pytest.raises(ValueError, match="a column is out of range"):
            topomask.attention(q, k, v, csr=(torch.arange(7), torch.full((6,), wrapped)))
        with pytest.raises(ValueError, match="a column is out of range"):
            topomask.SparseMask(torch.arange(7), torch.full((6,), wrapped), torch.ones(6)[None])


def test_masks_are_made_again_in_another_process() -> None:
    """A recipe, constants and parameters are the whole mask: nothing else is needed to compute with it."""
    mask = small_mask()
    recipe, constants, parameters = mask._expression()
    q, k, v = (positive(1, 2, 6, 3) for _ in range(3))
    copies = [c.clone() for c in constants]  # which the library has never seen
    out = ops.attention(q, k, v, recipe, copies, parameters, "linear", "relu", "auto", *DEFAULTS)
    assert torch.equal(out, topomask.attention(q, k, v, mask=mask))
    assert json.loads(recipe)["mask"] == "grf"


def test_errors_are_the_sentences_of_the_library() -> None:
    graph = small_graph()
    rows = (graph.row_ptr, graph.col, graph.weight)
    with pytest.raises(ValueError, match="coupling: unknown value 'repeling', did you mean 'repelling'?"):
        ops.sample_features(*rows, '{"coupling": "repeling"}', 0)
    with pytest.raises(ValueError, match="p_halt must be between 0 and 1, got 1.5"):
        ops.sample_features(*rows, '{"p_halt": "1.5"}', 0)
    with pytest.raises(ValueError, match="there is no setting 'normalise' here"):
        ops.sample_features(*rows, '{"normalise": "none"}', 0)
    with pytest.raises(ValueError, match="expected columns from 0 to 5, got 77 at entry 0"):
        ops.sample_features(graph.row_ptr, torch.full_like(graph.col, 77), graph.weight, WALKS, 0)
    with pytest.raises(ValueError, match="nodes from 0 to 2, got 3 at edge 5"):
        ops.graph_from_edges(EDGES, None, 3, False, "drop", "keep")
    with pytest.raises(ValueError, match="expected a recipe as make_mask returns it, got 'grf'"):
        ops.mask_profile("grf")
    recipe, constants, parameters = small_mask()._expression()
    q = positive(1, 2, 6, 3)
    with pytest.raises(ValueError, match="expected 3 constants, got 2"):
        ops.mask_multiply(recipe, constants[:2], parameters, real(2, 6, 1), False)
    with pytest.raises(ValueError, match="x must be float32 or float64 \\[2, 6, columns\\]"):
        ops.mask_multiply(recipe, constants, parameters, real(2, 5, 1), False)
    with pytest.raises(ValueError, match="engine: unknown value 'mas', did you mean 'mask'?"):
        ops.attention(q, q, q, recipe, constants, parameters, "linear", "relu", "mas", *DEFAULTS)
    with pytest.raises(ValueError, match="mask: unknown value 'forrest', did you mean 'forest'?"):
        ops.make_mask("forrest", [], False, -1, 3, 1, "{}", [], [], torch.float32, torch.device("cpu"))
    with pytest.raises(ValueError, match="setting of GRFMask: unknown value 'walks'"):
        ops.make_mask("grf", list(rows), False, -1, 0, 1, '{"walks": "3"}', [], [], torch.float32, torch.device("cpu"))
