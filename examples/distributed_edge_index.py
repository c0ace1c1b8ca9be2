"""Train on a graph that no process holds whole: each rank has the `edge_index` of its own nodes, as with PyG.

torchrun --nproc-per-node 2 examples/distributed_edge_index.py
python examples/distributed_edge_index.py  # one process: the same losses

Each rank has the data that loaders of PyTorch Geometric return: x [n, F], y [n], n_id [n] (the numbers of its
nodes in the whole graph) and edge_index [2, e], sources above targets, with all edges that end at its nodes.
They are a torch_geometric Data if PyG is installed; the example works without it. The graph is a ring of
communities with random shortcuts. A node sees its class through much noise, and its neighbours along incoming
edges.
"""

import argparse
from types import SimpleNamespace
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from topomask.distributed import DistributedGraph, GRFMask, attention

try:
    from torch_geometric.data import Data
except ImportError:
    Data = SimpleNamespace

NODES, CLASSES, HEADS, WIDTH = 600, 4, 2, 8


def own_data(rank: int, ranks: int) -> Any:
    """The part of one rank, computed without reading anything of the others."""
    n_id = torch.arange(rank * NODES // ranks, (rank + 1) * NODES // ranks)
    near = [(n_id + offset) % NODES for offset in (-2, -1, 1, 2)]
    shortcut = (n_id * 7919 + 13) % NODES
    source = torch.stack([*near, shortcut])  # [5, n]: who sends to each node
    edge_index = torch.stack([source.flatten(), n_id.expand(5, -1).flatten()])
    y = n_id * CLASSES // NODES
    noise = torch.randn(NODES, CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)[n_id]
    x = nn.functional.one_hot(y, CLASSES) + 1.5 * noise
    return Data(x=x, y=y, n_id=n_id, edge_index=edge_index, train_mask=n_id % 3 > 0)


class GRFConv(nn.Module):
    """`topomask.pyg.GRFConv` on the rows of a rank's own nodes: attention along incoming edges."""

    def __init__(self, in_channels: int, out_channels: int, mask: GRFMask) -> None:
        super().__init__()
        self.mask = mask
        self.qkv = nn.Linear(in_channels, 3 * HEADS * WIDTH, dtype=torch.float64)
        self.out = nn.Linear(HEADS * WIDTH, out_channels, dtype=torch.float64)
        self.f = nn.Parameter(torch.tensor([[1.0, 0.5, 0.25]] * HEADS, dtype=torch.float64))

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).view(-1, 3, HEADS, WIDTH).unbind(1)  # packed: [n, H, d]
        self.mask.f = self.f
        return self.out(attention(q, k, v, self.mask).flatten(1))


def sum_gradients(model: nn.Module) -> None:
    """Sums gradients over ranks: each rank has those of its own nodes. That of f is summed already."""
    for name, parameter in model.named_parameters():
        if not name.endswith("f"):
            dist.all_reduce(parameter.grad)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--epochs", type=int, default=30)
    arguments = parser.parse_args()
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    ranks, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)

    data = own_data(rank, ranks)
    graph = DistributedGraph.from_edge_index(data.edge_index, data.n_id, NODES, directed=True)
    walks = GRFMask(graph.normalised(), torch.ones(HEADS, 3), num_walks=16, max_hops=2, shared_walks=False, seed=3)
    torch.manual_seed(1)  # the same model on every rank
    model = GRFConv(CLASSES, CLASSES, walks)
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)

    losses, accuracy = [], 0.0
    for _ in range(arguments.epochs):
        optimiser.zero_grad()
        out = model(data.x)
        loss = nn.functional.cross_entropy(out[data.train_mask], data.y[data.train_mask], reduction="sum")
        loss.backward()
        right = (out.argmax(1) == data.y)[~data.train_mask]
        figures = torch.stack([loss.detach(), right.sum(), torch.tensor(right.numel())])
        if ranks > 1:
            sum_gradients(model)
            dist.all_reduce(figures)
        losses.append(figures[0].item())
        accuracy = (figures[1] / figures[2]).item()
        optimiser.step()
    if rank == 0:
        print(f"{ranks} ranks: loss {losses[0]:.6f} -> {losses[-1]:.6f}, {accuracy:.1%} of the other nodes right")
    if dist.is_initialized():
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
