"""torch.compile and torch.export of modules that use the operators."""

import sysconfig
from pathlib import Path

import pytest
import topomask
import torch


def block(graph: topomask.Graph, mask: topomask.Mask, **options) -> topomask.nn.TransformerBlock:
    torch.manual_seed(1)
    return topomask.nn.TransformerBlock(16, 2, mask, **options)


@pytest.mark.parametrize(
    "make, options",
    [
        (lambda g: topomask.GRFMask(g, 8, 0.3, 3, heads=2), {}),
        (lambda g: topomask.GRFMask(g, 8, 0.3, 3, heads=2), {"kind": "softmax"}),
        (lambda g: topomask.GRFMask(g, 4, 0.3, 3, heads=2, shared_walks=False), {"engine": "feature"}),
        (lambda g: topomask.GRFMask(g, 8, 0.3, 3, heads=2), {"engine": "dense", "kind": "softmax"}),
        (lambda g: topomask.PowerSeriesMask(g, 3, heads=2), {}),
        (lambda g: topomask.PowerSeriesMask(g, 3, heads=2), {"engine": "feature"}),
        (lambda g: topomask.SumMask(topomask.GRFMask(g, 4, 0.3, 3, heads=2), topomask.NeighbourMask(g)), {}),
        (lambda g: topomask.ScaledMask(topomask.DegreeMask(g, 2), torch.ones(34), torch.ones(34)), {}),
        (lambda g: topomask.ForestMask(topomask.Graph.load("path:34"), 2), {"engine": "feature"}),
    ],
)
def test_compiled_matches_eager(karate: topomask.Graph, make, options) -> None:
    layer = block(karate, make(karate), **options)
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 34, 16)

    def run(function):
        layer.zero_grad()
        out = function(x)
        out.square().sum().backward()
        return [out.detach(), *(p.grad.clone() for p in layer.parameters() if p.requires_grad)]

    for a, b in zip(run(layer), run(compiled)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


def test_one_graph_serves_every_batch_size(karate: topomask.Graph) -> None:
    mask = topomask.GRFMask(karate, 8, 0.3, 3, heads=2)
    graphs = []

    def count(graph, inputs):
        graphs.append(graph)
        return graph

    @torch.compile(fullgraph=True, backend=count)
    def compiled(q):
        return topomask.attention(q, q, q, mask=mask)

    for batch in (2, 3, 5, 7):
        q = torch.randn(batch, 2, 34, 8)
        torch.testing.assert_close(compiled(q), topomask.attention(q, q, q, mask=mask))
    assert len(graphs) <= 2  # the first, and one with a symbol for the batch


@pytest.mark.skipif(
    not (Path(sysconfig.get_paths()["include"]) / "Python.h").exists(),
    reason="inductor compiles against Python.h (Debian: python3-dev)",
)
def test_inductor(karate: topomask.Graph) -> None:
    mask = topomask.GRFMask(karate, 8, 0.3, 3, heads=2)

    @torch.compile(fullgraph=True)
    def compiled(q, k, v):
        return topomask.attention(q, k, v, mask=mask)

    q, k, v = (torch.randn(1, 2, 34, 8, requires_grad=True) for _ in range(3))
    out, expected = compiled(q, k, v), topomask.attention(q, k, v, mask=mask)
    torch.testing.assert_close(out, expected)
    leaves = (q, k, v, mask.f)
    for a, b in zip(torch.autograd.grad(out.sum(), leaves), torch.autograd.grad(expected.sum(), leaves)):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5)


def test_sampling_is_traced(karate: topomask.Graph) -> None:
    """The number of nonzeros is known only when the walks have been sampled."""

    @torch.compile(fullgraph=True, backend="aot_eager")
    def compiled(row_ptr, col, weight, f):
        walks = '{"num_walks": "4", "max_hops": "2", "seed": "3"}'
        row_ptr, col, *deposits = torch.ops.topomask.sample_features(row_ptr, col, weight, walks, 0)
        return torch.ops.topomask.modulate(f, *deposits).sum()

    f = torch.ones(1, 3)
    out = compiled(karate.row_ptr, karate.col, karate.weight, f)
    torch.testing.assert_close(out, topomask.sample_walk_features(karate, 4, 2, seed=3).values(f).sum())


def test_export(karate: topomask.Graph) -> None:
    layer = block(karate, topomask.GRFMask(karate, 4, 0.3, 3, heads=2)).eval()
    x = torch.randn(2, 34, 16)
    program = torch.export.export(layer, (x,), dynamic_shapes={"x": {0: torch.export.Dim("batch")}})
    torch.testing.assert_close(program.module()(x), layer(x))
    more = torch.randn(5, 34, 16)
    torch.testing.assert_close(program.module()(more), layer(more))
