"""What must never be silently wrong: stale values, NaN, zeros of M, unequal scales, transforms, odd inputs."""

import copy
import dataclasses
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import topomask
import torch
from topomask import attention
from topomask._ops import ops
from torch import Tensor

KINDS = ("linear", "softmax")
ENGINES = ("mask", "feature", "dense")


def operands(heads: int = 2, n: int = 34, d: int = 4, dtype: torch.dtype = torch.float64) -> tuple[Tensor, ...]:
    return tuple(torch.rand(1, heads, n, d, dtype=dtype) + 0.1 for _ in range(3))


def masks_with_f(karate: topomask.Graph) -> dict[str, topomask.Mask]:
    """Masks whose f is found as `.f` of the first GRFMask in them."""
    grf = topomask.GRFMask(karate, 8, 0.3, 3, heads=2)
    return {
        "grf": copy.deepcopy(grf),
        "asymmetric": topomask.GRFMask(karate, 8, 0.3, 3, heads=2, ensembles="asymmetric"),
        "per head": topomask.GRFMask(karate, 8, 0.3, 3, heads=2, shared_walks=False),
        "absolute": topomask.AbsoluteMask(copy.deepcopy(grf)),
        "global tokens": topomask.GlobalTokensMask(copy.deepcopy(grf)),
        "sum": topomask.SumMask(copy.deepcopy(grf), topomask.NeighbourMask(karate)),
    }


def f_of(mask: topomask.Mask) -> torch.nn.Parameter:
    return next(module.f for module in mask.modules() if isinstance(module, topomask.GRFMask))


WRITES = {
    "in place": lambda f: f.mul_(torch.tensor([1.0, 2.0, 0.5, 0.1])),
    "through data": lambda f: f.data.mul_(torch.tensor([1.0, 2.0, 0.5, 0.1])),
    "vector_to_parameters": lambda f: torch.nn.utils.vector_to_parameters(
        torch.linspace(0.1, 0.9, f.numel()), [f]
    ),
    "another storage": lambda f: setattr(f, "data", f.data * 3 + 0.1),
}


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("engine", ["auto", *ENGINES])
def test_values_follow_f_however_it_is_written(karate: topomask.Graph, write: str, engine: str) -> None:
    for name, mask in masks_with_f(karate).items():
        q, k, v = operands(n=mask.num_nodes)
        with torch.no_grad():
            before = attention(q, k, v, mask=mask, engine=engine)
            assert torch.equal(attention(q, k, v, mask=mask, engine=engine), before)
            WRITES[write](f_of(mask))
            after = attention(q, k, v, mask=mask, engine=engine)
            fresh = attention(q, k, v, mask=copy.deepcopy(mask), engine=engine)
        assert not torch.allclose(before, after), name
        assert torch.equal(after, fresh), name
        # With gradients "auto" counts new values of M, and may take another engine, which rounds M otherwise.
        learning = attention(q, k, v, mask=mask, engine=engine)
        torch.testing.assert_close(learning, fresh, rtol=1e-6, atol=1e-6)  # f is float32


@pytest.mark.parametrize("fused", [False, True])
def test_validation_moves_with_the_optimiser(karate: topomask.Graph, fused: bool) -> None:
    mask = topomask.GRFMask(karate, 8, 0.3, 3, heads=2)
    q, k, v = operands(dtype=torch.float32)
    optimiser = torch.optim.AdamW(mask.parameters(), 0.1, fused=fused)
    losses = []
    for _ in range(4):
        optimiser.zero_grad()
        attention(q, k, v, mask=mask).square().mean().backward()
        optimiser.step()
        with torch.no_grad():
            losses.append(attention(q, k, v, mask=mask).square().mean().item())
        expected = attention(q, k, v, mask=mask).square().mean().item()
        assert losses[-1] == pytest.approx(expected, rel=1e-6)
    assert len(set(losses)) == 4


def test_inference_mode_spoils_nothing(karate: topomask.Graph) -> None:
    for name, mask in masks_with_f(karate).items():
        mask.requires_grad_(False)
        q, k, v = operands(n=mask.num_nodes)
        for engine in ENGINES:
            with torch.inference_mode():
                first = attention(q, k, v, mask=mask, engine=engine)
            leaves = [x.clone().requires_grad_() for x in (q, k, v)]
            out = attention(*leaves, mask=mask, engine=engine)
            out.sum().backward()
            assert torch.equal(out, first), name
        mask.requires_grad_(True)
        attention(q, k, v, mask=mask).sum().backward()
        assert f_of(mask).grad is not None
    with torch.inference_mode():
        made = topomask.GRFMask(karate, 8, 0.3, 3, heads=2)
    q, k, v = operands()
    q.requires_grad_()
    with torch.no_grad():
        f = made.f.clone()
    made.f = torch.nn.Parameter(f)
    attention(q, k, v, mask=made).sum().backward()


def test_graphs_may_be_written_to_afterwards(karate: topomask.Graph) -> None:
    graph = topomask.Graph(karate.row_ptr.clone(), karate.col.clone(), karate.weight.clone(), False)
    mask = topomask.PowerSeriesMask(graph, 2)
    before = mask.dense()
    graph.weight.data.zero_()
    assert torch.equal(mask.dense(), before)


def test_grf_conv_sees_edges_that_were_edited() -> None:
    pytest.importorskip("torch_geometric")
    from topomask.pyg import GRFConv

    edges = torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]])
    conv, x = GRFConv(4, 4).eval(), torch.randn(4, 4)
    before = conv(x, edges)
    edges[:, 4:] = torch.tensor([[0, 3], [3, 0]])
    after = conv(x, edges)
    assert not torch.allclose(before, after)
    torch.testing.assert_close(after, conv(x, edges.clone()))
    edges.data.copy_(torch.tensor([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]]))
    torch.testing.assert_close(conv(x, edges), before)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("feature_map", ["relu", "elu1", "squared-relu", "identity", "favor"])
def test_nan_is_not_laundered(karate: topomask.Graph, kind: str, engine: str, feature_map: str) -> None:
    if kind == "softmax" and (engine == "feature" or feature_map != "relu"):
        pytest.skip("no such attention")
    mask = topomask.GRFMask(karate, 8, 0.3, 3, heads=2)
    for poisoned in range(3):
        for dtype in (torch.float32, torch.float64):
            x = [y.clone() for y in operands(dtype=dtype)]
            x[poisoned][0, 1, 5, 2] = torch.nan
            leaves = [y.requires_grad_() for y in x]
            out = attention(*leaves, mask=mask, kind=kind, engine=engine, feature_map=feature_map)
            assert bool(out[0, 1, 5].isnan().any()), f"operand {poisoned}"
            if feature_map != "favor":
                assert bool(out[0, 0].isfinite().all())
    with torch.no_grad():
        mask.f[0, 0] = torch.nan
    q, k, v = operands()
    assert bool(attention(q, k, v, mask=mask, kind=kind, engine=engine, feature_map=feature_map)[0, 0].isnan().all())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("engine", ENGINES)
def test_entries_that_are_zero_learn(karate: topomask.Graph, kind: str, engine: str) -> None:
    """Gradients where M is 0 against finite differences, for entries, matrices and tables."""
    if kind == "softmax" and engine == "feature":
        pytest.skip("no such attention")
    values = torch.rand(2, karate.num_entries, dtype=torch.float64) + 0.5
    values[:, ::3] = 0
    matrix = torch.rand(2, 34, 34, dtype=torch.float64) + 0.5
    matrix[:, ::2, ::3] = 0
    masks: list[topomask.Mask] = [topomask.DenseMask(matrix, learnable=True)] if engine != "mask" else []
    if engine != "mask":
        masks.append(topomask.ShortestPathMask(karate, 2, heads=2).double())
    masks.append(topomask.SparseMask(karate.row_ptr, karate.col, values))
    q, k, v = (x.requires_grad_() for x in operands())
    for mask in masks:
        (parameter,) = mask.parameters()
        assert bool((parameter == 0).any())
        assert torch.autograd.gradcheck(
            lambda q, k, v, p, mask=mask: attention(q, k, v, mask=mask, kind=kind, engine=engine),
            (q, k, v, parameter), fast_mode=True, atol=1e-5,
        )  # fmt: skip


@pytest.mark.parametrize("engine", ENGINES)
def test_random_features_have_the_gradients_of_finite_differences(karate: topomask.Graph, engine: str) -> None:
    """Factors that cancel in the normalised attention are left out of the features, and of their gradients."""
    mask = topomask.GRFMask(karate, 8, 0.3, 3, heads=2).double()
    q, k, v = (x.requires_grad_() for x in operands())
    assert torch.autograd.gradcheck(
        lambda q, k, v: attention(q, k, v, mask=mask, engine=engine, feature_map="favor"),
        (q, k, v), fast_mode=True, atol=1e-5,
    )  # fmt: skip


def test_unequal_scales_in_a_packed_batch(karate: topomask.Graph) -> None:
    """One graph with large keys does not zero the rows of another."""
    graphs = topomask.union([karate, karate])
    q, k, v = (torch.randn(2, 1, 34, 8, dtype=torch.float64) for _ in range(3))
    k[1] *= 40
    packed = [torch.cat(list(x), 1).unsqueeze(0) for x in (q, k, v)]
    together = topomask.GRFMask(graphs, 8, 0.3, 3)
    blocks = topomask.BlockDiagonalMask(*(topomask.PowerSeriesMask(karate, 3) for _ in range(2)))
    alone = topomask.PowerSeriesMask(karate, 3)
    for feature_map in ("relu", "elu1", "favor"):
        out = attention(*packed, mask=blocks, feature_map=feature_map)
        expected = attention(q, k, v, mask=alone, feature_map=feature_map)
        torch.testing.assert_close(out, torch.cat(list(expected), 1).unsqueeze(0))
        other = attention(*packed, mask=together, feature_map=feature_map)[:, :, :34]  # beside the one with large keys
        assert bool((other.abs().sum(-1) > 0).all())


def test_transforms_are_right_or_refused(karate: topomask.Graph) -> None:
    mask = topomask.GRFMask(karate, 8, 0.3, 3, heads=2).double()
    q, k, v = operands()

    def total(x: Tensor) -> Tensor:
        return attention(x, k, v, mask=mask).square().sum()

    leaf = q.clone().requires_grad_()
    (expected,) = torch.autograd.grad(total(leaf), leaf)
    for transform, refused in (
        (lambda: torch.func.jvp(total, (q,), (torch.ones_like(q),))[1], "forward-mode"),
        (lambda: torch.func.jacfwd(total)(q), "forward-mode"),
        (lambda: torch.func.grad(total)(q), None),
        (lambda: torch.func.vmap(lambda x: attention(x, k, v, mask=mask))(torch.stack([q, 2 * q])), None),
    ):
        try:
            result = transform()
        except (RuntimeError, ValueError) as error:
            assert refused is None or refused in str(error), str(error)
            continue
        assert refused is None
        if result.shape == expected.shape:
            torch.testing.assert_close(result, expected)
        else:
            torch.testing.assert_close(result[1], attention(2 * q, k, v, mask=mask))
    with torch.autograd.forward_ad.dual_level(), pytest.raises((RuntimeError, ValueError), match="forward-mode"):
        total(torch.autograd.forward_ad.make_dual(q, torch.ones_like(q)))


def test_a_mask_that_cannot_be_renewed_stays_as_it_was(karate: topomask.Graph) -> None:
    mask = topomask.GRFMask(karate, 8, 0.3, 3, heads=2)
    q, k, v = operands(dtype=torch.float32)
    before, shown = attention(q, k, v, mask=mask), repr(mask)
    on_two_nodes = topomask.Graph.grid(2)
    broken = dataclasses.replace(on_two_nodes, col=torch.tensor([5, 0], dtype=torch.int32))
    for renew, error in ((lambda: mask.resample(-1), ValueError), (lambda: mask.rebuild(broken), ValueError),
                         (lambda: mask.rebuild("grid"), TypeError)):  # fmt: skip
        with pytest.raises(error):
            renew()
        assert mask.num_nodes == 34 and repr(mask) == shown
        assert torch.equal(attention(q, k, v, mask=mask), before)
    assert mask.resample(7) is mask and not torch.equal(attention(q, k, v, mask=mask), before)
    assert mask.rebuild(on_two_nodes).num_nodes == 2


def test_values_of_the_wrong_type_are_one_sentence(karate: topomask.Graph) -> None:
    mask = topomask.GRFMask(karate, 8, 0.3, 3, heads=2)
    q, k, v = operands(dtype=torch.float32)
    for call, message in (
        (lambda: attention(q.numpy(), k, v, mask=mask), "attention: q must be a tensor, got ndarray"),
        (lambda: attention(q, k, v, mask=mask, num_features=1.5), "num_features must be a whole number, got float"),
        (lambda: attention(q, k, v, mask=mask, max_workspace=1e9), "max_workspace must be a whole number, got float"),
        (lambda: attention(q, k, v, mask=mask, kind=3), "kind must be a word, got int"),
        (lambda: attention(None, k, v, mask=mask), "attention: q must be a tensor, got NoneType"),
        (lambda: attention(q, k, v, mask=mask, kind=None), "kind must be a word, got NoneType"),
        (lambda: attention(q, k, v, mask=mask, epsilon="x"), "epsilon must be a number, got str"),
        (lambda: topomask.plan_attention(q, v, mask, num_features=2.5), "num_features must be a whole number, got float"),
        (lambda: topomask.knn(torch.rand(4, 2), 2.5), "knn: k must be a whole number, got float"),
        (lambda: topomask.knn(torch.rand(4, 2), None), "knn: k must be a whole number, got NoneType"),
        (lambda: topomask.Graph.from_points(torch.rand(4, 2), 2.5), "k must be a whole number, got float"),
    ):
        with pytest.raises(TypeError) as error:
            call()
        assert str(error.value).endswith(message), str(error.value)
    numbers = topomask.knn(torch.rand(4, 2), np.int64(2)), topomask.Graph.grid(np.int32(3), 2)
    assert (numbers[0].index.shape[1], numbers[1].num_nodes) == (2, 6)
    attention(q, k, v, mask=mask, feature_map="favor", num_features=np.int64(3))
    with pytest.raises(ValueError, match="unknown kind 'sofmax', did you mean 'softmax'"):
        topomask.nn.GraphMaskedAttention(32, 2, kind="sofmax")
    with pytest.raises(ValueError, match="num_features 1000000000 takes .*, the free memory has room for"):  # none is drawn
        attention(q, k, v, mask=mask, feature_map="favor", num_features=10**9)
    for name, value in (("epsilon", -1.0), ("epsilon", torch.nan), ("normaliser_guard", -1.0), ("normaliser_guard", torch.nan)):
        with pytest.raises(ValueError, match=f"{name} must be finite and 0 or more, got"):
            attention(q, k, v, mask=mask, **{name: value})


def test_random_features_leave_the_rest_of_the_workspace_to_the_engine() -> None:
    mask = topomask.PowerSeriesMask(topomask.Graph.grid(30, 30), 3)
    q, k, v = torch.randn(3, 1, 2, 900, 16)
    expected = attention(q, k, v, mask=mask, engine="feature", feature_map="favor")
    for most in (2_000_000, 5_000_000, 40_000_000):  # the features take 0.9 MB
        found = attention(q, k, v, mask=mask, engine="feature", feature_map="favor", max_workspace=most)
        torch.testing.assert_close(found, expected)
    with pytest.raises(ValueError, match="num_features 64 takes 926 kB, max_workspace is 500 kB"):
        attention(q, k, v, mask=mask, engine="feature", feature_map="favor", max_workspace=500_000)


def test_layers_take_random_features(karate: topomask.Graph) -> None:
    mask = topomask.GRFMask(karate, 8, 0.3, 3)
    x = torch.randn(34, 16)
    layers = [
        topomask.nn.TransformerBlock(16, 2, mask, feature_map="favor", num_features=number, feature_seed=seed)
        for number, seed in ((8, 0), (8, 1), (16, 0))
    ]
    for layer in layers[1:]:
        layer.load_state_dict(layers[0].state_dict())
    a, b, c = (layer(x) for layer in layers)
    assert not torch.allclose(a, b) and not torch.allclose(a, c)


def test_odd_layouts_give_the_same(karate: topomask.Graph) -> None:
    mask = topomask.GRFMask(karate, 8, 0.3, 3, heads=2)
    q, k, v = operands(dtype=torch.float32)
    for kind in KINDS:
        for engine in ENGINES:
            if kind == "softmax" and engine == "feature":
                continue
            expected = attention(q, k, v, mask=mask, kind=kind, engine=engine)
            strided = [x.transpose(1, 2).contiguous().transpose(1, 2) for x in (q, k, v)]
            expanded = [x.expand(3, -1, -1, -1) for x in (q, k, v)]
            sliced = [torch.cat([x, x], -1)[..., : x.shape[-1]] for x in (q, k, v)]
            torch.testing.assert_close(attention(*strided, mask=mask, kind=kind, engine=engine), expected)
            torch.testing.assert_close(attention(*expanded, mask=mask, kind=kind, engine=engine)[1:2], expected)
            torch.testing.assert_close(attention(*sliced, mask=mask, kind=kind, engine=engine), expected)


def test_arrays_and_natural_mistakes(karate: topomask.Graph) -> None:
    q, k, v = operands(dtype=torch.float32)
    edges = np.array([[0, 1, 2], [1, 2, 0]])
    assert topomask.Graph.from_edge_index(edges).num_nodes == 3
    assert topomask.Graph.from_points(np.random.rand(20, 3), 2).num_nodes == 20
    networkx = pytest.importorskip("networkx")
    assert topomask.GRFMask(networkx.karate_club_graph(), 4, 0.5, 2).num_nodes == 34
    with pytest.raises(TypeError, match="mask must be a topomask.Mask, got Tensor"):
        attention(q, k, v, mask=torch.ones(34, 34))
    with pytest.raises(TypeError, match="expected a topomask.Graph"):
        topomask.GRFMask(torch.ones(3, 3))
    for make, message in (
        (lambda: topomask.NeighbourMask(karate, -1), "hops must be at least 0"),
        (lambda: topomask.SineSPEMask(4, waves=0), "waves must be at least 1"),
        (lambda: attention(q[..., :0], k[..., :0], v, mask=topomask.GRFMask(karate)), "at least one channel"),
    ):
        with pytest.raises(ValueError, match=message):
            make()
    assert topomask.NeighbourMask(karate, 10**9).num_entries() == 34 * 34
    mask = topomask.GRFMask(karate, 8, 0.3, 3, heads=2)
    mask.f = torch.nn.Parameter(torch.ones(2, 7))
    with pytest.raises(ValueError, match="f must be float32 or float64 \\[2, 4\\], got Float \\[2, 7\\]"):
        attention(q, k, v, mask=mask)


def test_boolean_nodes_are_a_mask(karate: topomask.Graph) -> None:
    chosen = np.zeros(34, dtype=bool)
    chosen[[3, 5, 8]] = True
    kernel = topomask.NodeKernel(karate)
    by_mask = kernel.fit_transform(chosen)
    assert by_mask.shape == (3, 3)
    np.testing.assert_array_equal(by_mask, topomask.NodeKernel(karate).fit_transform([3, 5, 8]))
    with pytest.raises(ValueError, match="boolean mask of nodes must be \\[34\\], got \\[5\\]"):
        kernel.fit_transform(np.ones(5, dtype=bool))


@pytest.mark.parametrize("kind", KINDS)
def test_zero_channels_are_refused_by_every_mask(karate: topomask.Graph, kind: str) -> None:
    empty = torch.empty(1, 1, 34, 0)
    masks = [topomask.GRFMask(karate), topomask.PowerSeriesMask(karate), topomask.NoMask(34), topomask.CausalMask(34),
             topomask.NeighbourMask(karate), topomask.DegreeMask(karate), topomask.ShortestPathMask(karate),
             topomask.ToeplitzMask((34,)), topomask.LearnedFeaturesMask(34), topomask.SineSPEMask(34),
             topomask.ConvolutionalSPEMask(34), topomask.DenseMask(torch.ones(34, 34)), None]  # fmt: skip
    for mask in masks:
        with pytest.raises(ValueError, match="at least one channel"):
            attention(empty, empty, torch.ones(1, 1, 34, 2), mask=mask, kind=kind)


def test_hub_graphs_are_foreseen() -> None:
    """A mask that would fill the memory says so before it is made, and names the one that would not."""
    hubs = topomask.Graph.load("ba:20000,8")
    advice = ops.mask_advice(
        "grf", [hubs.row_ptr, hubs.col, hubs.weight], False, 1, '{"num_walks": "64", "p_halt": "0.1"}'
    )
    assert "asymmetric" in advice
    plain = topomask.Graph.grid(100, 100)
    assert not ops.mask_advice("grf", [plain.row_ptr, plain.col, plain.weight], False, 1, "{}")


_LONG_WORK = {
    # Half a minute each, in different rooms of the library.
    "walks": "topomask.GRFMask(topomask.Graph.load('torus:2000,8'), 500_000)",
    "distances": "topomask.ShortestPathMask(topomask.Graph.load('ba:40000,8'), max_bytes=2**40)",
    "pattern": "m = topomask.GRFMask(topomask.Graph.load('ba:50000,16'), 16, p_halt=0.1); m.entries()",
}


@pytest.mark.parametrize("work", _LONG_WORK)
def test_ctrl_c_ends_long_work_within_a_second(work: str) -> None:
    code = f"import warnings, topomask; warnings.simplefilter('ignore'); print('begin', flush=True); {_LONG_WORK[work]}; print('end')"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as program:
        assert program.stdout is not None and program.stdout.readline() == "begin\n"
        time.sleep(2)
        assert program.poll() is None, "the work was over before it could be interrupted"
        asked = time.monotonic()
        program.send_signal(signal.SIGINT)
        out, err = program.communicate(timeout=60)
        took = time.monotonic() - asked
    assert "end" not in out
    assert "KeyboardInterrupt" in err
    assert took < 10, f"{took:.1f} s"  # a second on idle cores; those of a test may be busy
