"""Masks against their dense matrices, and attention against the formula."""

import copy
import dataclasses

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
    torch.manual_seed(0)
    n = graph.num_nodes
    grf = {"num_walks": 8, "p_halt": 0.3, "max_hops": 3, "heads": 2, "seed": 1}
    return {
        "grf": topomask.GRFMask(graph, **grf),
        "grf per head": topomask.GRFMask(graph, **grf, shared_walks=False),
        "grf independent": topomask.GRFMask(graph, **grf, ensembles="independent", coupling="both"),
        "grf asymmetric": topomask.GRFMask(graph, **grf, ensembles="asymmetric"),
        "grf with an f of the keys": topomask.GRFMask(graph, **grf, key_init=[1.0, 0.5, 0.2]),
        "grf with walks and an f of the keys": topomask.GRFMask(
            graph, **grf, ensembles="independent", shared_walks=False, init=torch.rand(2, 2, 4)
        ),
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
        "global tokens without a mask": topomask.GlobalTokensMask(topomask.NoMask(n - 2), 2),
        "toeplitz": topomask.ToeplitzMask((2, n // 2), 2, decay=0.3),
        "toeplitz exponential": topomask.ToeplitzMask((n,), 2, decay=0.1, transform="exponential"),
        "forest": topomask.ForestMask(two_trees(), 2, a=torch.tensor([-0.5, 0.1]), b=torch.tensor([0.0, 0.3])),
        "weighted forest": topomask.ForestMask(two_trees(), 2, a=-0.3, weighted=True),
        "shortest path": topomask.ShortestPathMask(
            graph, 2, 2, init=torch.tensor([[1.0, 0.6, 0.4, 0.1], [0.9, 0.5, 0.2, 0.05]])
        ),
        "learned features": topomask.LearnedFeaturesMask(n, 3, init=torch.rand(1, n, 3)),
        "learned features of a high rank": topomask.LearnedFeaturesMask(n, 12, 2, init=torch.rand(2, n, 12)),
        "sine spe": topomask.SineSPEMask(n, 40, 2, phases=torch.rand(2, 4), seed=3),
        "convolutional spe": topomask.ConvolutionalSPEMask(n, 6, 2, taps=3, key_filter=torch.rand(2, 3)),
        "sum of entries": topomask.SumMask(topomask.GRFMask(graph, **grf), topomask.NeighbourMask(graph)),
        "sum of entries per head": topomask.SumMask(
            topomask.GRFMask(graph, **grf, shared_walks=False), topomask.GRFMask(graph, **grf),
        ),
        "sum of factors": topomask.SumMask(topomask.NoMask(n), topomask.DegreeMask(graph, 2)),
        "sum of products": topomask.SumMask(topomask.GRFMask(graph, **grf), topomask.PowerSeriesMask(graph, 2)),
        "absolute": topomask.AbsoluteMask(topomask.GRFMask(graph, **grf, init=[1.0, -0.7, 0.2])),
        "absolute per head": topomask.AbsoluteMask(topomask.GRFMask(graph, **grf, shared_walks=False)),
        "absolute of a series": topomask.AbsoluteMask(topomask.PowerSeriesMask(graph, 2, 2, init=[1.0, -0.7, 0.2])),
        "scaled": topomask.ScaledMask(topomask.GRFMask(graph, **grf), 0.5 + torch.rand(n), 0.5 + torch.rand(2, n)),
        "scaled per head": topomask.ScaledMask(
            topomask.GRFMask(graph, **grf, shared_walks=False), 0.5 + torch.rand(2, n), 0.5 + torch.rand(n)
        ),
        "scaled factors": topomask.ScaledMask(topomask.DegreeMask(graph), column_scale=0.5 + torch.rand(2, n)),
        "block diagonal": topomask.BlockDiagonalMask(
            topomask.GRFMask(topomask.Graph.grid(4, 5), **grf), topomask.NeighbourMask(topomask.Graph.grid(14))
        ),
        "block diagonal of products": topomask.BlockDiagonalMask(
            topomask.PowerSeriesMask(topomask.Graph.grid(4, 5), 2, 2), topomask.NoMask(14)
        ),
    }  # fmt: skip


def two_trees() -> topomask.Graph:
    """A tree of 15 nodes and a path of 19, with weights."""
    trees = topomask.union([topomask.Graph.load("tree:3"), topomask.Graph.load("path:19")])
    rows = torch.repeat_interleave(torch.arange(34), trees.degrees())
    return dataclasses.replace(trees, weight=((rows + trees.col) % 5 + 1) / 3)


def oracle(name: str) -> torch.Tensor | None:
    """The matrix of a mask from its definition, where that is not what `dense` computes anyway."""
    mask = MASKS[name]
    if "forest" in name:
        graph = two_trees()
        steps = graph.to_dense() if mask._settings.get("weighted") == "true" else (graph.to_dense() > 0).double()
        distance = torch.where(steps > 0, steps, torch.inf).fill_diagonal_(0)
        for k in range(34):
            distance = torch.minimum(distance, distance[:, k, None] + distance[None, k])
        a, b = mask.a.double()[:, None, None], mask.b.double()[:, None, None]
        return torch.where(distance.isinf(), 0, torch.exp(a * distance.nan_to_num(posinf=0) + b))
    if name == "shortest path":
        step = (topomask.Graph.load("karate").to_dense() > 0).double() + torch.eye(34, dtype=torch.float64)
        hops = sum((torch.linalg.matrix_power(step, k) == 0).long() for k in range(3))
        return mask.table.double()[:, hops]
    if "f of the keys" in name:
        pairs = [[part.to_dense().double() for part in mask.features(h)] for h in range(2)]
        return torch.stack([phi @ psi.T for phi, psi in pairs])
    if name.startswith("sum"):
        return sum(part.dense(torch.float64) for part in mask.masks)
    if name.startswith("absolute"):
        return mask.mask.dense(torch.float64).abs()
    if name.startswith("scaled"):
        inner = mask.mask.dense(torch.float64)
        rows = 1 if mask.row_scale is None else mask.row_scale.double().unsqueeze(-1)
        return rows * inner * mask.column_scale.double().unsqueeze(-2)
    if name.startswith("block"):
        blocks = [part.dense(torch.float64).expand(2, -1, -1) for part in mask.masks]
        return torch.stack([torch.block_diag(*(b[h] for b in blocks)) for h in range(2)])
    return None


MASKS = masks(topomask.Graph.load("karate"))


@pytest.mark.parametrize("name", MASKS)
def test_products_match_the_matrix(name: str) -> None:
    mask = MASKS[name]
    x = torch.randn(2, 34, 3, dtype=torch.float64)
    matrix = mask.dense(torch.float64)
    assert matrix.shape == (mask.heads, 34, 34)
    expected = oracle(name)
    if expected is not None:
        torch.testing.assert_close(matrix, expected, rtol=1e-5, atol=1e-6)
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


@pytest.mark.parametrize("name", MASKS)
def test_gradients_of_the_matrix(name: str) -> None:
    """Values and gradients of products against finite differences, with parameters in double precision."""
    mask = copy.deepcopy(MASKS[name]).double()
    parameters = [p for p in mask.parameters() if p.requires_grad]
    x = torch.randn(2, 34, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(
        lambda x, *_: mask.multiply(x), (x, *parameters), fast_mode=True, atol=1e-5
    )
    assert torch.autograd.gradcheck(
        lambda x, *_: mask.multiply(x, True), (x, *parameters), fast_mode=True, atol=1e-5
    )
    if parameters:
        assert torch.autograd.gradcheck(
            lambda *_: mask.dense(torch.float64), parameters, fast_mode=True, atol=1e-5
        )


def test_hypercube() -> None:
    graph = topomask.Graph.load("hypercube:4")
    laplacian = torch.diag(graph.degrees().double()) - graph.to_dense()
    x = torch.randn(2, 16, 3, dtype=torch.float64, requires_grad=True)
    for kind, divisor in (("combinatorial", 1), ("normalised", 4)):
        mask = topomask.HypercubeHeatMask(graph, 2, beta=torch.tensor([0.3, 1.2]), laplacian=kind).double()
        expected = torch.matrix_exp(-mask.beta[:, None, None] * laplacian / divisor)
        torch.testing.assert_close(mask.dense(torch.float64), expected)
        assert torch.autograd.gradcheck(lambda x, _, mask=mask: mask.multiply(x), (x, mask.beta))
    assert topomask.HypercubeHeatMask(3).num_nodes == 8
    with pytest.raises(ValueError, match="hypercube of 2\\^d nodes, got 34 nodes"):
        topomask.HypercubeHeatMask(topomask.Graph.load("karate"))
    with pytest.raises(ValueError, match="hypercube of dimension 4"):
        topomask.HypercubeHeatMask(topomask.Graph.grid(4, 4))


def test_spe_has_the_expectation_that_it_promises() -> None:
    """Over many realisations the mean of M_ij is P(i - j), within four standard errors."""
    runs, n = 400, 12
    sine = topomask.SineSPEMask(n, 1, runs, phases=torch.full((runs, 4), 0.4))
    taps = torch.tensor([1.0, 0.5, -0.25]).expand(runs, -1)
    convolutional = topomask.ConvolutionalSPEMask(n, 1, runs, query_filter=taps, key_filter=taps.flip(1))
    t = torch.arange(n)[:, None] - torch.arange(n)
    waves = 2 * torch.pi * sine.frequencies[0][:, None, None] * t + 0.4
    expected = {sine: (0.25 * waves.cos()).sum(0), convolutional: torch.zeros(n, n)}
    for p, a in enumerate([1.0, 0.5, -0.25]):
        for r, b in enumerate([-0.25, 0.5, 1.0]):
            expected[convolutional] += a * b * (t == p - r)
    for mask, mean in expected.items():
        draws = mask.dense(torch.float64).detach()
        assert bool(((draws.mean(0) - mean).abs() <= 4 * draws.std(0) / runs**0.5).all())


def test_printing(karate: topomask.Graph) -> None:
    mask = topomask.GRFMask(karate, 8, 0.3, 3, seed=7)
    assert repr(mask) == "GRFMask(nodes=34, heads=1, num_walks=8, p_halt=0.3, max_hops=3, seed=7)"
    text = repr(topomask.GlobalTokensMask(topomask.SumMask(mask, topomask.NoMask(34))))
    assert "GRFMask" in text and "NoMask" in text and "Buffers" not in text and "ModuleList" not in text


def test_small_workspace_blocks_give_the_same(karate: topomask.Graph) -> None:
    mask = topomask.PowerSeriesMask(karate, 3)
    q, k, v = (torch.rand(1, 2, 34, 8, requires_grad=True) for _ in range(3))
    whole = attention(q, k, v, mask=mask, engine="feature")
    blocks = attention(q, k, v, mask=mask, engine="feature", max_workspace=6 * 4 * 2 * 34 * 9 * 3)
    torch.testing.assert_close(blocks, whole)
    grads = [torch.autograd.grad(out.square().sum(), (q, k, v, mask.alpha)) for out in (whole, blocks)]
    for a, b in zip(*grads):
        torch.testing.assert_close(a, b)
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
    constants = [buffer.clone() for buffer in layer.attention.mask.buffers()]
    layer.to(torch.bfloat16)
    assert layer.attention.mask.f.dtype == torch.bfloat16
    assert all(torch.equal(a, b) for a, b in zip(layer.attention.mask.buffers(), constants, strict=True))
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


def test_keys_may_have_an_f_of_their_own(karate: topomask.Graph) -> None:
    mask = topomask.GRFMask(karate, 8, 0.3, 3, heads=2, init=[1.0, 0.5], key_init="diffusion:sigma2=1")
    assert mask.f.shape == (2, 2, 4) and mask.f[1, 0].tolist() == [1.0, 0.5, 0.0, 0.0]
    start = mask.f.detach().clone()
    mask.dense().square().sum().backward()
    assert (mask.f.grad.abs().sum((0, 2)) > 0).all()
    assert not torch.equal(mask.dense(), mask.resample(5).dense()) and torch.equal(mask.f, start)
    assert mask.rebuild(topomask.Graph.grid(3, 3)).dense().shape == (2, 9, 9)
    with pytest.raises(ValueError, match="key_init: asymmetric ensembles have one-hot keys"):
        topomask.GRFMask(karate, ensembles="asymmetric", key_init=[1.0])


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
        ((q[:, :, :30],) * 3, {}, "mask 'grf' is for 34 nodes, q has 30"),
        ((q[:, :1].expand(1, 3, 34, 4),) * 3, {}, "has 2 heads, q has 3"),
        ((q, q.double(), q), {}, "q and k must have one dtype"),
        ((q.half(),) * 3, {}, "float32, float64, bfloat16 or, on a GPU, float16, got Half on cpu"),
        ((q, q[..., :3], q), {}, "same number of channels, got 4 and 3"),
        ((q[0, 0],) * 3, {}, "must be \\[B, H, N, d\\]"),
        ((q,) * 3, {"kind": "quadratic"}, "kind: unknown value 'quadratic'"),
        ((q,) * 3, {"engine": "fast"}, "engine: unknown value 'fast'"),
        ((q,) * 3, {"feature_map": "tanh"}, "feature_map: unknown value 'tanh'"),
        ((q,) * 3, {"kind": "softmax", "engine": "feature"}, "not a product of features"),
        ((q,) * 3, {"engine": "dense", "max_workspace": 10}, "bytes of workspace"),
        ((q,) * 3, {"max_workspace": -1}, "max_workspace: expected at least 0 bytes, got -1"),
        ((q.clone().fill_(torch.nan), q, q), {"check_finite": True}, "q holds a NaN"),
    ):
        with pytest.raises(ValueError, match=message):
            attention(*arguments, mask=mask, **options)
    with pytest.raises(ValueError, match="init: expected at most 3 numbers"):
        topomask.GRFMask(karate, 4, max_hops=2, init=[1.0, 1.0, 1.0, 1.0])
    for make, message in (
        (lambda: topomask.GRFMask(karate, init=[]), "unknown kernel"),
        (lambda: topomask.GRFMask(karate, heads=0), "heads must be at least 1, got 0"),
        (lambda: topomask.PowerSeriesMask(karate, 2, init=[1.0, 1.0, 1.0, 1.0]), "init: expected at most 3 numbers"),
        (lambda: topomask.ForestMask(karate), "cycle"),
        (lambda: topomask.ForestMask(topomask.Graph.load("path:3"), 2, a=torch.ones(3)), "a must be a real tensor \\[heads\\] = \\[2\\]"),
        (lambda: topomask.ShortestPathMask(karate, 255), "max_distance must be from 0 to 254"),
        (lambda: topomask.ShortestPathMask(karate, 3, max_bytes=100), "max_bytes is 100"),
        (lambda: topomask.SineSPEMask(4, 0), "realisations must be at least 1"),
        (lambda: topomask.LearnedFeaturesMask(4, 0), "rank must be at least 1"),
        (lambda: topomask.SumMask(), "at least one mask"),
        (lambda: topomask.SumMask(topomask.NoMask(3), topomask.NoMask(4)), "must have 3 nodes as the first"),
        (lambda: topomask.BlockDiagonalMask(mask, topomask.LearnedFeaturesMask(4, 2, 3)), "1 head or 2 heads"),
        (lambda: topomask.ScaledMask(mask, torch.ones(3)), "row_scale must be float32 or float64 \\[34\\]"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
    assert topomask.PowerSeriesMask(karate, 4, init=[1.0, 0.5]).alpha.tolist() == [[1.0, 0.5, 0.0, 0.0, 0.0]]
    with pytest.raises(ValueError, match="unknown value 'both'"):
        topomask.GRFMask(karate, 4, ensembles="both")
    with pytest.raises(ValueError, match="multiple of heads"):
        topomask.nn.GraphMaskedAttention(8, 3)
