"""Graphs from everything that people keep them in."""

from types import SimpleNamespace

import numpy as np
import pytest
import scipy.sparse
import topomask
import torch
from topomask import Graph


def test_every_source_gives_the_same_graph(karate: Graph) -> None:
    dense = karate.to_dense()
    edges = dense.nonzero().T
    sources = [
        Graph.from_edge_index(edges, 34),
        Graph.from_edge_index(edges[:, edges[0] < edges[1]].int(), 34, undirected=True),
        Graph.from_csr(karate.row_ptr, karate.col, karate.weight),
        Graph.from_dense(dense),
        Graph.from_scipy(scipy.sparse.coo_array(dense.numpy())),
        Graph.from_pyg(SimpleNamespace(edge_index=edges, num_nodes=34)),
    ]
    for graph in sources:
        assert not graph.directed
        assert torch.equal(graph.row_ptr, karate.row_ptr)
        assert torch.equal(graph.col, karate.col)
        assert torch.equal(graph.weight, karate.weight)
    assert (karate.to_scipy() != scipy.sparse.csr_matrix(dense.numpy())).nnz == 0


def test_networkx() -> None:
    networkx = pytest.importorskip("networkx")
    source = networkx.DiGraph()
    source.add_weighted_edges_from([("a", "b", 2.0), ("b", "c", 3.0), ("a", "a", -1.0)])
    graph = Graph.from_networkx(source)
    assert graph.directed
    np.testing.assert_array_equal(graph.to_dense(), networkx.to_numpy_array(source))
    path = networkx.path_graph(4)
    np.testing.assert_array_equal(Graph.from_networkx(path).to_dense(), networkx.to_numpy_array(path))
    assert Graph.from_networkx(networkx.empty_graph(3)).num_nodes == 3


def test_points_and_grids() -> None:
    points = torch.rand(50, 3, dtype=torch.float64)
    graph = Graph.from_points(points, 4, symmetric=False)
    nearest = torch.cdist(points, points).fill_diagonal_(torch.inf).argsort(1)[:, :4].sort(1)[0]
    assert torch.equal(graph.col.view(50, 4).long(), nearest)
    assert graph.directed and Graph.from_points(points, 4).directed  # as in the shell
    assert not Graph.from_points(points, 4, symmetric=True).directed
    assert Graph.grid(2, 3).num_entries == 14
    assert Graph.grid(3, 3, diagonals=True).degrees().tolist() == [3, 5, 3, 5, 8, 5, 3, 5, 3]
    assert Graph.grid(5, wrap=True).degrees().tolist() == [2] * 5


def test_normalisations(one_way: Graph, karate: Graph) -> None:
    dense = karate.to_dense()
    degree = dense.sum(1)
    torch.testing.assert_close(
        karate.normalised().to_dense(), dense / (degree[:, None] * degree).sqrt(), rtol=1e-6, atol=1e-7
    )
    torch.testing.assert_close(karate.normalised("random-walk").to_dense().sum(1), torch.ones(34).double())
    assert torch.equal(topomask.normalise(one_way, "none").weight, one_way.weight)
    assert torch.equal(one_way.transposed().to_dense(), one_way.to_dense().T)
    assert not one_way.is_symmetric() and karate.is_symmetric()


def test_batches(karate: Graph) -> None:
    edges = torch.tensor([[0, 1, 2, 3], [1, 0, 3, 2]])
    by_batch = Graph.from_edge_index(edges, batch=torch.tensor([0, 0, 1, 1, 1]))
    assert by_batch.ptr.tolist() == [0, 2, 5] and by_batch.num_nodes == 5
    by_ptr = Graph.from_edge_index(edges, ptr=torch.tensor([0, 2, 5]))
    assert torch.equal(by_batch.ptr, by_ptr.ptr)
    with pytest.raises(ValueError, match="edge \\(2, 3\\) joins two graphs"):
        Graph.from_edge_index(edges, ptr=torch.tensor([0, 3, 5]))
    with pytest.raises(ValueError, match="batch must be ascending \\[5\\]"):
        Graph.from_edge_index(edges, 5, batch=torch.tensor([0, 1, 0, 1, 1]))

    both = topomask.union([karate, Graph.grid(3, 2)])
    assert both.ptr.tolist() == [0, 34, 40]
    assert torch.equal(both.to_dense()[:34, :34], karate.to_dense())
    assert torch.equal(both.to_dense()[34:, 34:], Graph.grid(3, 2).to_dense())
    assert topomask.union([]).num_nodes == 0
    matrix = topomask.GRFMask(both, 8, 0.3, 3).dense()[0]
    assert bool((matrix[:34, 34:] == 0).all()) and bool((matrix[34:, :34] == 0).all())


def test_weights_are_constants(karate: Graph) -> None:
    edges = karate.to_dense().nonzero().T
    ones = torch.ones(edges.shape[1], requires_grad=True)
    for graph in (
        Graph.from_edge_index(edges, 34, ones),
        Graph.from_csr(karate.row_ptr, karate.col, ones),
        Graph.from_dense(karate.to_dense().requires_grad_()),
    ):
        assert not graph.weight.requires_grad
        assert torch.equal(graph.weight, karate.weight)


def test_batches_of_points() -> None:
    points, queries = torch.rand(9, 2), torch.rand(4, 2)
    batch, query_batch = torch.tensor([0] * 5 + [1] * 4), torch.tensor([0, 1, 1, 2])
    found = topomask.knn(points, 2, queries=queries, batch=batch, query_batch=query_batch)
    by_ptr = {"ptr": torch.tensor([0, 5, 9, 9]), "query_ptr": torch.tensor([0, 1, 3, 4])}
    expected = topomask.knn(points, 2, queries=queries, **by_ptr)
    assert torch.equal(found.index, expected.index) and found.count.tolist() == [2, 2, 2, 0]
    assert torch.equal(
        topomask.knn(points, 2, box=1.0).index, topomask.knn(points, 2, box=torch.ones(2)).index
    )
    assert Graph.from_points(points, 2, batch=batch).ptr.tolist() == [0, 5, 9]
    for make, error, message in (
        (lambda: topomask.knn(points, 2, queries=queries, batch=batch), ValueError, "give both"),
        (lambda: topomask.knn(points, 2, query_batch=query_batch), ValueError, "give both"),
        (lambda: topomask.radius(points, 0.5), ValueError, "max_neighbours must be given"),
        (lambda: Graph.from_points(points, 2, queries=queries), TypeError, "no argument 'queries'"),
        (lambda: Graph.from_points(points, 2, k_=3), TypeError, "k_"),
    ):
        with pytest.raises(error, match=message):
            make()


def test_edges_carry_messages_as_in_pyg() -> None:
    """From source to target: a row of W holds the nodes that its node hears from."""
    edges = torch.tensor([[0, 1], [1, 2]])
    weights = torch.tensor([2.0, 3.0])
    expected = torch.tensor([[0.0, 0.0, 0.0], [2.0, 0.0, 0.0], [0.0, 3.0, 0.0]], dtype=torch.float64)
    assert torch.equal(Graph.from_edge_index(edges, 3, weights).to_dense(), expected)
    assert torch.equal(Graph.from_edge_index(edges, 3, weights, flow="target_to_source").to_dense(), expected.T)
    data = SimpleNamespace(edge_index=edges, num_nodes=3, edge_weight=weights)
    assert torch.equal(Graph.from_pyg(data).to_dense(), expected)
    points = torch.rand(9, 2, generator=torch.Generator().manual_seed(1))
    by_edges = Graph.from_edge_index(topomask.knn(points, 2, edge_index=True), 9)
    by_points = Graph.from_points(points, 2)
    assert by_points.directed and torch.equal(by_edges.to_dense() != 0, by_points.to_dense() != 0)
    traced = torch.compile(lambda e: Graph.from_edge_index(e, 3).degrees(), fullgraph=True, backend="eager")
    assert traced(edges).tolist() == [0, 1, 1]
    with pytest.raises(ValueError, match="flow must be 'source_to_target' or 'target_to_source', got 'forward'"):
        Graph.from_edge_index(edges, flow="forward")


def test_policies() -> None:
    edges = torch.tensor([[0, 0, 1], [1, 1, 1]])
    weights = torch.tensor([2.0, 3.0, 5.0])
    assert Graph.from_edge_index(edges, 2, weights).weight.tolist() == [2.0, 5.0]
    assert Graph.from_edge_index(edges, 2, weights, duplicates="sum").weight.tolist() == [5.0, 5.0]
    assert Graph.from_edge_index(edges, 2, weights, self_loops="drop").num_entries == 1
    empty = Graph.from_edge_index(torch.empty(2, 0, dtype=torch.int64), 3)
    assert (empty.num_nodes, empty.num_entries) == (3, 0)


def test_grid_takes_sizes_or_a_tuple() -> None:
    assert torch.equal(Graph.grid((3, 2)).to_dense(), Graph.grid(3, 2).to_dense())
    with pytest.raises(TypeError, match="Graph.grid: size must be a whole number, got float"):
        Graph.grid(3.0, 2)


def test_errors() -> None:
    for make, message in (
        (lambda: Graph.from_edge_index(torch.zeros(3, 2).long(), 3), "edge_index must be \\[2, E\\]"),
        (lambda: Graph.from_edge_index(torch.tensor([[0], [-1]]), 3), "nodes from 0 to 2, got -1"),
        (lambda: Graph.from_edge_index(torch.tensor([[0], [1]]), 3, torch.tensor([torch.inf])), "finite"),
        (lambda: Graph.from_edge_index(torch.tensor([[0], [1]]), 2, duplicates="drp"), "did you mean 'drop'"),
        (lambda: Graph.from_dense(torch.ones(2, 3)), "expected a matrix \\[N, N\\]"),
        (lambda: Graph.from_points(torch.rand(3, 2), -1), "k"),
        (lambda: Graph.grid(0, -3), "grid"),
        (lambda: Graph.load("no-such-file.mtx"), "no-such-file.mtx"),
        (lambda: Graph.grid(2, 2).normalised("symetric"), "did you mean 'symmetric'"),
        (lambda: Graph.from_scipy(scipy.sparse.eye(2, 3)), "square"),
        (lambda: topomask.GRFMask(Graph.grid(2, 2), seed=-1), "seed: expected a whole number between 0"),
    ):
        with pytest.raises(ValueError, match=message):
            make()


def test_partition(karate: Graph) -> None:
    for method in ("metis", "morton", "stream"):
        part = topomask.partition(karate, 4, method)
        assert part.dtype == torch.int32
        assert part.shape == (34,)
        assert set(part.tolist()) == {0, 1, 2, 3}
        assert torch.equal(part, topomask.partition(karate, 4, method))
    points = torch.arange(34.0).flip(0)[:, None]
    assert topomask.partition(karate, 2, "morton", points=points)[0] == 1
    with pytest.raises(ValueError, match="did you mean 'metis'"):
        topomask.partition(karate, 4, "metric")
    with pytest.raises(ValueError, match="parts must be from 1"):
        topomask.partition(karate, 0)
