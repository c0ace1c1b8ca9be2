"""Node classification on Cora: a linear transformer with a GRF mask, without one, and GCN and GAT.

python examples/node_classification.py cora.npz
TOPOMASK_DATA=/path/to/data python examples/node_classification.py    # $TOPOMASK_DATA/graphs/npz/cora.npz

Each class has 20 labelled nodes for training; 500 nodes choose the epoch and 1000 are for testing. Each seed
has another random split, the same for every model. All models use the same dropout on the words. GCN and GAT
come from PyTorch Geometric, if it is installed. The settings of the masked model were chosen on splits of
seeds below 200, so the default seeds start at 200; GCN and GAT were not tuned.
"""

import argparse
import math
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path

import numpy as np
import scipy.sparse
import torch
from torch import Tensor, nn

import topomask

DIM, HEADS, DROPOUT = 64, 4, 0.5
warnings.filterwarnings("ignore", message="Sparse")  # torch calls its sparse tensors beta


class LinearTransformer(nn.Module):
    """A layer of linear attention between two linear maps; without a mask it attends to all nodes."""

    def __init__(self, channels: int, classes: int, mask: topomask.Mask | None) -> None:
        super().__init__()
        self.input = nn.Linear(channels, DIM)
        self.norm = nn.LayerNorm(DIM)
        self.attention = topomask.nn.GraphMaskedAttention(DIM, HEADS, mask)
        self.output = nn.Linear(DIM, classes)
        self.dropout = nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        x = self.dropout(self.norm(self.input(x)).relu())
        attended, _ = self.attention(x)
        return self.output(self.dropout(x + attended))


class Convolutions(nn.Module):
    """Two convolutions of PyTorch Geometric."""

    def __init__(self, first: nn.Module, second: nn.Module) -> None:
        super().__init__()
        self.first, self.second, self.dropout = first, second, nn.Dropout(DROPOUT)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.second(self.dropout(self.first(x, edge_index).relu()), edge_index)


def load(path: Path) -> tuple[topomask.Graph, Tensor, Tensor]:
    """The graph of citations, words [N, channels] as sparse rows that sum to 1, and labels [N]."""

    def matrix(file: np.lib.npyio.NpzFile, name: str) -> scipy.sparse.csr_matrix:
        parts = tuple(file[f"{name}_{part}"] for part in ("data", "indices", "indptr"))
        return scipy.sparse.csr_matrix(parts, file[f"{name}_shape"])

    with np.load(path) as file:
        citations, words = matrix(file, "adj"), matrix(file, "attr")
        labels = torch.from_numpy(file["labels"].astype(np.int64))
    words = scipy.sparse.csr_matrix(words.multiply(1 / np.maximum(words.sum(1), 1)), dtype=np.float32)
    x = torch.sparse_csr_tensor(words.indptr, words.indices, words.data, words.shape)
    return topomask.Graph.from_scipy(citations.maximum(citations.T)), x, labels


def with_dropout(x: Tensor) -> Tensor:
    values = nn.functional.dropout(x.values(), DROPOUT)
    return torch.sparse_csr_tensor(x.crow_indices(), x.col_indices(), values, x.shape)


def split(labels: Tensor, seed: int) -> tuple[Tensor, Tensor, Tensor]:
    """Nodes to learn from, to validate and to test on."""
    order = torch.randperm(labels.shape[0], generator=torch.Generator().manual_seed(seed))
    train = torch.cat([order[labels[order] == c][:20] for c in labels.unique()])
    rest = order[~torch.isin(order, train)]
    return train, rest[:500], rest[500:1500]


def test_accuracy(
    model: nn.Module, x: Tensor, edge_index: Tensor, labels: Tensor, seed: int, epochs: int, patience: int
) -> float:
    """At the epoch that is best on the validation nodes; stops when none has been better for `patience`."""
    train, validation, test = split(labels, seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.005, weight_decay=5e-4)
    best, best_epoch, result = -1.0, 0, 0.0
    for epoch in range(epochs):
        model.train()
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(with_dropout(x), edge_index)[train], labels[train]).backward()
        optimiser.step()
        model.eval()
        with torch.no_grad():
            right = (model(x, edge_index).argmax(1) == labels).float()
        if right[validation].mean() > best:
            best, best_epoch, result = right[validation].mean().item(), epoch, right[test].mean().item()
        elif epoch - best_epoch >= patience:
            break
    return result


def main() -> None:
    parser = argparse.ArgumentParser(description="Cora: masked and unmasked linear attention, GCN and GAT.")
    parser.add_argument("file", nargs="?", type=Path, help="cora.npz; default: in $TOPOMASK_DATA/graphs/npz")
    parser.add_argument("--seeds", type=int, default=5, help="each has a split, weights and walks of its own")
    parser.add_argument("--first-seed", type=int, default=200)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--patience", type=int, default=20)
    parser.add_argument("--walks", type=int, default=64)
    parser.add_argument("--p-halt", type=float, default=0.1)
    parser.add_argument("--max-hops", type=int, default=4)
    options = parser.parse_args()
    folder = os.environ.get("TOPOMASK_DATA")
    if options.file is None and not folder:
        sys.exit("give the path of cora.npz, or set TOPOMASK_DATA to the folder with graphs/npz/cora.npz")
    graph, x, labels = load(options.file or Path(str(folder)) / "graphs" / "npz" / "cora.npz")
    rows = torch.repeat_interleave(torch.arange(graph.num_nodes), graph.degrees())
    edge_index = torch.stack([rows, graph.col.long()])
    channels, classes = x.shape[1], int(labels.max()) + 1

    def masked(seed: int) -> nn.Module:
        # The walks are sampled once for a model; all hops count alike at first, f learns the rest.
        mask = topomask.GRFMask(
            graph,
            options.walks,
            options.p_halt,
            options.max_hops,
            heads=HEADS,
            seed=seed,
            init=[1.0] * (options.max_hops + 1),
            ensembles="asymmetric",
        )
        return LinearTransformer(channels, classes, mask)

    grf, unmasked = "linear attention, GRF mask", "linear attention, no mask"
    models: dict[str, Callable[[int], nn.Module]] = {
        grf: masked,
        unmasked: lambda seed: LinearTransformer(channels, classes, None),
    }
    try:
        from torch_geometric.nn import GATConv, GCNConv
    except ImportError:
        print("torch_geometric is not installed: without GCN and GAT")
    else:
        models["GCN"] = lambda seed: Convolutions(GCNConv(channels, DIM), GCNConv(DIM, classes))
        models["GAT"] = lambda seed: Convolutions(
            GATConv(channels, DIM // HEADS, heads=HEADS), GATConv(DIM, classes)
        )

    print(f"Cora: {graph}, {channels} words, {classes} classes")
    print(f"{'model':28} test accuracy, mean ± std of {options.seeds} seeds      time")
    results: dict[str, np.ndarray] = {}
    for name, make in models.items():
        start, values = time.perf_counter(), []
        for seed in range(options.first_seed, options.first_seed + options.seeds):
            torch.manual_seed(seed)
            model = make(seed)
            values.append(
                100 * test_accuracy(model, x, edge_index, labels, seed, options.epochs, options.patience)
            )
        results[name] = np.array(values)
        spread = f"{np.mean(values):5.1f} ± {np.std(values, ddof=1) if len(values) > 1 else math.nan:.1f} %"
        print(f"{name:28} {spread}{time.perf_counter() - start:35.1f} s", flush=True)
    gain = results[grf] - results[unmasked]  # on the same splits
    if len(gain) > 1:
        error = gain.std(ddof=1) / math.sqrt(len(gain))
        print(f"the mask gains {gain.mean():.1f} points, {gain.mean() / error:.1f} standard errors")


if __name__ == "__main__":
    main()
