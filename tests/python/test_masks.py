"""Masks against their dense matrices, and attention against the formula."""

import copy

import pytest
import topomask
import torch
from topomask import attention


def dense_attention(q, k, v, matrix, kind):
    """The definition, in plain torch."""
    if kind == "softmax":
        scores = torch.exp(q @ k.transpose(-2, -1) / q.shape[-1] ** 0.5)
    else:
        scores = (q.clamp_min(0) + 1e-3) @ (k.clamp_min(0) + 1e-3).transpose(-2, -1)
    weights = scores * matrix
    return weights @ v / weights.sum(-1, keepdim=True)


def masks(graph: topomask.Graph) -> dict[str, topomask.Mask]:
    n = graph.num_nodes
    grf = {"num_walks": 8, "p_halt": 0.3, "max_hops": 3, "heads": 2, "seed": 1}
    return {
        "grf": topomask.GRFMask(graph, **grf),
        "grf per head": topomask.GRFMask(graph, **grf, shared_walks=False),
        "grf independent": topomask.GRFMask(graph, **grf, ensembles="independent", coupling="both"),
        "grf asymmetric": topomask.GRFMask(graph, **grf, ensembles="asymmetric"),
        "power series": topomask.PowerSeriesMask(graph, 4, heads=2),
        "neighbours": topomask.NeighbourMask(graph, 2),
        "none": topomask.NoMask(n),
        "causal": topomask.CausalMask(n),
        "degree": topomask.DegreeMask(graph, 2),
        "dense": topomask.DenseMask(torch.rand(2, n, n), learnable=True),
        "global tokens": topomask.GlobalTokensMask(topomask.GRFMask(topomask.Graph.grid(4, 8), **grf), 2),
        "global tokens per head": topomask.GlobalTokensMask(
            topomask.GRFMask(topomask.Graph.grid(3, 11), **grf, shared_walks=False)
        ),
        "global tokens on a series": topomask.GlobalTokensMask(
            topomask.PowerSeriesMask(topomask.Graph.grid(4, 8), 3, 2), 2
        ),
        "toeplitz": topomask.ToeplitzMask((2, n // 2), 2, decay=0.3),
        "toeplitz exponential": topomask.ToeplitzMask((n,), 2, decay=0.1, transform="exponential"),
    }


MASKS = masks(topomask.Graph.load("karate"))


@pytest.mark.parametrize("name", MASKS)
def test_products_match_the_matrix(name: str) -> None:
    mask = MASKS[name]
    x = torch.randn(2, 34, 3, dtype=torch.float64)
    matrix = mask.dense(torch.float64)
    assert matrix.shape == (mask.heads, 34, 34)
    if name.startswith("global"):
        tokens, inner = mask.tokens, mask.mask.dense(torch.float64)
        assert bool((matrix[:, :tokens] == 1).all()) and bool((matrix[:, :, :tokens] == 1).all())
        torch.testing.assert_close(matrix[:, tokens:, tokens:], inner)
    # Parameters are float32, and so is what is computed from them alone.
    for transposed in (False, True):
        expected = (matrix.transpose(-2, -1) if transposed else matrix) @ x
        torch.testing.assert_close(mask.multiply(x, transposed), expected, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["linear", "softmax"])
@pytest.mark.parametrize("name", MASKS)
def test_engines_agree_with_the_formula_and_its_gradients(name: str, kind: str) -> None:
    mask = MASKS[name]
    inputs = [torch.rand(2, 2, 34, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    parameters = [p for p in mask.parameters() if p.requires_grad]
    weights = torch.randn(2, 2, 34, 4, dtype=torch.float64)

    def run(function):
        out = function()
        return out.detach(), *torch.autograd.grad(
            (out * weights).sum(), inputs + parameters, allow_unused=True
        )

    expected = run(lambda: dense_attention(*inputs, mask.dense(torch.float64), kind))
    engines = ["auto", "dense"]
    engines += ["feature"] if kind == "linear" else []
    engines += ["mask"] if mask.num_entries() >= 0 else []
    for engine in engines:
        got = run(lambda engine=engine: attention(*inputs, mask=mask, kind=kind, engine=engine))
        # The parameters are float32, so their gradients are rounded to that.
        for a, b in zip(got, expected):
            torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-5)


def test_small_workspace_blocks_give_the_same(
    karate: topomask.Graph, monkeypatch: pytest.MonkeyPatch
) -> None:
    mask = topomask.PowerSeriesMask(karate, 3)
    q, k, v = (torch.rand(1, 2, 34, 8, requires_grad=True) for _ in range(3))
    whole = attention(q, k, v, mask=mask, engine="feature")
    blocks = attention(q, k, v, mask=mask, engine="feature", max_workspace=6 * 4 * 2 * 34 * 9 * 3)
    torch.testing.assert_close(blocks, whole)
    grads = [torch.autograd.grad(out.square().sum(), (q, k, v, mask.alpha)) for out in (whole, blocks)]
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b)
    monkeypatch.setattr(topomask._attention, "_BLOCK_BYTES", 2 * 4 * 4 * 2 * 34 * 10)
    torch.testing.assert_close(attention(q, k, v, mask=mask, engine="dense"), whole)


def test_directed_graphs_estimate_powers_of_w(one_way: topomask.Graph) -> None:
    """Averaged over seeds, M comes to sum_k alpha_k W^k within four standard errors, also where W is not symmetric."""
    w = one_way.normalised("max-degree").to_dense()
    f = torch.tensor([1.0, 0.5, 0.25], dtype=torch.float64)
    half = sum(f[k] * torch.linalg.matrix_power(w, k) for k in range(3))
    draws = torch.stack([
        topomask.GRFMask(one_way, 16, 0.3, 2, seed=s, init=f, ensembles="independent", normalise="max-degree").dense(torch.float64)[0]
        for s in range(400)
    ]).detach()  # fmt: skip
    error = (draws.mean(0) - half @ half).abs()
    assert bool((error <= 4 * draws.std(0) / 20 + 1e-6).all())


def test_packed_layout_and_no_mask(karate: topomask.Graph) -> None:
    mask = MASKS["grf"]
    q, k, v = (torch.randn(1, 2, 34, 4) for _ in range(3))
    packed = attention(*(x[0].transpose(0, 1) for x in (q, k, v)), mask=mask)
    torch.testing.assert_close(packed.transpose(0, 1)[None], attention(q, k, v, mask=mask))
    torch.testing.assert_close(attention(q, k, v), dense_attention(q, k, v, 1.0, "linear"))
    assert attention(q[..., :0, :], k[..., :0, :], v[..., :0, :]).shape == (1, 2, 0, 4)


def test_a_row_without_entries_gives_zero() -> None:
    graph = topomask.Graph.from_edge_index(torch.tensor([[0, 1], [1, 0]]), 3)
    mask = topomask.NeighbourMask(graph, include_self=False)
    q, k, v = (torch.randn(1, 1, 3, 2, requires_grad=True) for _ in range(3))
    for engine in ("mask", "feature", "dense"):
        out = attention(q, k, v, mask=mask, engine=engine)
        assert bool((out[0, 0, 2] == 0).all())
        assert all(bool(g.isfinite().all()) for g in torch.autograd.grad(out.sum(), (q, k, v)))


def test_bfloat16_and_autocast(karate: topomask.Graph) -> None:
    layer = topomask.nn.TransformerBlock(16, 2, topomask.GRFMask(karate, 8, 0.3, 3, heads=2))
    x = torch.randn(2, 34, 16)
    exact = layer(x)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        rough = layer(x)
    assert (rough.float() - exact).abs().max() < 0.1
    rough.float().sum().backward()
    assert layer.attention.mask.f.grad is not None
    q = torch.randn(1, 2, 34, 8, dtype=torch.bfloat16)
    assert attention(q, q, q, mask=layer.attention.mask).dtype == torch.bfloat16
    loads = layer.attention.mask.sets[0].query.load.clone()
    layer.to(torch.bfloat16)
    assert layer.attention.mask.f.dtype == torch.bfloat16
    assert torch.equal(layer.attention.mask.sets[0].query.load, loads)
    assert layer(x.bfloat16()).dtype == torch.bfloat16


def test_state_dict_holds_parameters_alone(karate: topomask.Graph) -> None:
    layer = topomask.nn.GraphMaskedAttention(8, 2, topomask.GRFMask(karate, 4, 0.3, 3, heads=2))
    assert set(layer.state_dict()) == {
        "in_proj_weight", "in_proj_bias", "out_proj.weight", "out_proj.bias", "mask.f",
    }  # fmt: skip
    peer = torch.nn.MultiheadAttention(8, 2, batch_first=True)
    layer.load_state_dict(peer.state_dict(), strict=False)
    x = torch.randn(3, 34, 8)
    unmasked = copy.copy(layer)
    unmasked.kind = "softmax"
    out, weights = unmasked(x, mask=topomask.NoMask(34))
    assert weights is None
    torch.testing.assert_close(out, peer(x, x, x)[0])
    torch.testing.assert_close(layer(x[0])[0], layer(x[:1])[0][0])
    torch.testing.assert_close(copy.deepcopy(layer)(x)[0], layer(x)[0])


def test_training_moves_f(karate: topomask.Graph) -> None:
    mask = topomask.GRFMask(karate, 8, 0.3, 3, heads=1, seed=2)
    target = topomask.PowerSeriesMask(karate, 2, init=[1.0, 0.6, 0.3]).dense().detach()
    optimiser = torch.optim.Adam(mask.parameters(), 0.05)
    losses = []
    for _ in range(60):
        optimiser.zero_grad()
        loss = (mask.dense() - target).square().mean()
        loss.backward()
        optimiser.step()
        losses.append(loss.item())
    assert losses[-1] < losses[0] / 2


def test_errors(karate: topomask.Graph) -> None:
    mask = MASKS["grf"]
    q = torch.randn(1, 2, 34, 4)
    for arguments, options, message in (
        ((q[:, :, :30],) * 3, {}, "mask 'GRFMask' is for 34 nodes, q has 30"),
        ((q[:, :1].expand(1, 3, 34, 4),) * 3, {}, "has 2 heads, q has 3"),
        ((q, q.double(), q), {}, "q and k must have one dtype"),
        ((q.half(),) * 3, {}, "float32, float64 or bfloat16"),
        ((q, q[..., :3], q), {}, "same number of channels, got 4 and 3"),
        ((q[0, 0],) * 3, {}, "must be \\[B, H, N, d\\]"),
        ((q,) * 3, {"kind": "quadratic"}, "kind: unknown value 'quadratic'"),
        ((q,) * 3, {"engine": "fast"}, "engine: unknown value 'fast'"),
        ((q,) * 3, {"feature_map": "tanh"}, "feature_map: unknown value 'tanh'"),
        ((q,) * 3, {"kind": "softmax", "engine": "feature"}, "not a product of features"),
        ((q,) * 3, {"engine": "dense", "max_workspace": 10}, "bytes of workspace"),
        ((q.clone().fill_(torch.nan), q, q), {"check_finite": True}, "q holds a NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            attention(*arguments, mask=mask, **options)
    with pytest.raises(ValueError, match="init must be"):
        topomask.GRFMask(karate, 4, max_hops=2, init=[1.0, 1.0, 1.0, 1.0])
    with pytest.raises(ValueError, match="unknown value 'both'"):
        topomask.GRFMask(karate, 4, ensembles="both")
    with pytest.raises(ValueError, match="multiple of heads"):
        topomask.nn.GraphMaskedAttention(8, 3)
