"""PyTorch Geometric, Transformers and scikit-learn, each where it is installed."""

from pathlib import Path

import numpy as np
import pytest
import topomask
import torch


def test_grf_conv_by_itself(karate: topomask.Graph) -> None:
    from topomask.pyg import GRFConv

    edges = karate.to_dense().nonzero().T
    conv = GRFConv(5, 8, heads=2, num_walks=8, max_hops=3)
    x = torch.randn(34, 5)
    out = conv(x, edges)
    assert out.shape == (34, 8)
    assert torch.equal(conv(x, edges.clone()), out)
    out.square().sum().backward()
    assert conv.f.grad.abs().sum() > 0
    # A node attends along messages: in 0 -> 1 the second sees the first, and not the other way round.
    one_way = GRFConv(5, 8, num_walks=64, p_halt=0.1, max_hops=1, ensembles="asymmetric", init=[1.0, 1.0])
    pair = torch.tensor([[0], [1]])
    before = one_way(x[:2], pair)
    after = one_way(torch.stack([x[0] + 1, x[1]]), pair)
    assert not torch.allclose(before[1], after[1])
    after = one_way(torch.stack([x[0], x[1] + 1]), pair)
    torch.testing.assert_close(before[0], after[0])


def test_pyg_gps_conv(karate: topomask.Graph) -> None:
    pytest.importorskip("torch_geometric")
    from topomask.pyg import GRFConv
    from torch_geometric.data import Batch, Data
    from torch_geometric.nn import GPSConv

    edges = karate.to_dense().nonzero().T
    data = Data(x=torch.randn(34, 8), edge_index=edges)
    layer = GPSConv(8, GRFConv(8, 8, heads=2, num_walks=4), heads=2)
    layer(data.x, data.edge_index).sum().backward()
    assert layer.conv.f.grad is not None
    graph = topomask.Graph.from_pyg(Batch.from_data_list([data, data]))
    assert graph.ptr.tolist() == [0, 34, 68]


def test_vit(tmp_path: Path) -> None:
    transformers = pytest.importorskip("transformers")
    import topomask.transformers

    config = transformers.ViTConfig(
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        image_size=32,
        patch_size=8,
    )
    topomask.transformers.register()
    torch.manual_seed(0)
    model = transformers.ViTModel(config)
    images = torch.randn(2, 3, 32, 32)
    plain = model(images).last_hidden_state
    unmasked = topomask.transformers.attach(model, lambda layer: topomask.NoMask(17), kind="softmax")
    torch.testing.assert_close(unmasked(images).last_hidden_state, plain, rtol=1e-4, atol=1e-5)
    topomask.transformers.attach(model)
    assert model.config._attn_implementation == "topomask"
    out = model(images).last_hidden_state
    assert not torch.allclose(out, plain)
    out.sum().backward()
    grads = {name: p.grad for name, p in model.named_parameters() if name.endswith(".f")}
    assert len(grads) == 2 and all(g.abs().sum() > 0 for g in grads.values())
    with torch.no_grad():
        for name, p in model.named_parameters():
            if name.endswith(".f"):
                p.add_(torch.rand_like(p))
    out = model.eval()(images).last_hidden_state
    model.save_pretrained(tmp_path)
    again = topomask.transformers.attach(transformers.ViTModel.from_pretrained(tmp_path))
    assert topomask.transformers.load_masks(again, tmp_path) == 2
    torch.testing.assert_close(again(images).last_hidden_state, out)


def test_svc() -> None:
    svm = pytest.importorskip("sklearn.svm")
    from sklearn.base import clone

    graph = topomask.union([topomask.Graph.grid(5, 5), topomask.Graph.grid(5, 5)])
    labels = np.repeat([0, 1], 25)
    kernel = topomask.NodeKernel(graph, "diffusion:sigma2=20", num_walks=256, p_halt=0.1)
    train, test = np.arange(0, 50, 3), np.arange(1, 50, 3)
    model = svm.SVC(kernel="precomputed", C=1e3).fit(clone(kernel).fit_transform(train), labels[train])
    assert model.score(kernel.fit(train).transform(test), labels[test]) > 0.9
