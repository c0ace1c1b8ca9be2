"""Train a node classifier on a graph that is cut into parts, one for each process.

torchrun --nproc-per-node 2 examples/distributed_node_classifier.py
torchrun --nproc-per-node 2 examples/distributed_node_classifier.py --edge-index  # own edges, as with PyG

The classes are the four quarters of a grid. A node sees its class through much noise, so it needs its
neighbours.
The losses are those of one process: python examples/distributed_node_classifier.py
"""

import argparse

import torch
import torch.distributed as dist

import topomask
from topomask.distributed import DistributedGraph, GRFMask, attention

SIDE, HEADS, WIDTH, CLASSES = 24, 2, 8, 4


def whole_graph() -> tuple[topomask.Graph, torch.Tensor, torch.Tensor]:
    """The graph, features of its nodes [N, 4] and classes [N]."""
    row, column = torch.arange(SIDE).repeat_interleave(SIDE), torch.arange(SIDE).repeat(SIDE)
    labels = 2 * (row >= SIDE // 2) + (column >= SIDE // 2)
    noise = torch.randn(SIDE * SIDE, CLASSES, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    return topomask.Graph.grid(SIDE, SIDE), torch.eye(CLASSES, dtype=torch.float64)[labels] + 1.5 * noise, labels


def own_edges(graph: topomask.Graph, nodes: torch.Tensor) -> torch.Tensor:
    """The edges that end at a rank's nodes, [2, e], sources above targets, as a PyG loader returns them."""
    degree = graph.row_ptr.diff()
    target = torch.arange(graph.num_nodes).repeat_interleave(degree)
    kept = torch.isin(target, nodes)
    return torch.stack([graph.col[kept].long(), target[kept]])


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(1)  # the same on every rank
        self.qkv = torch.nn.Linear(CLASSES, 3 * HEADS * WIDTH, dtype=torch.float64)
        self.out = torch.nn.Linear(HEADS * WIDTH, CLASSES, dtype=torch.float64)
        self.f = torch.nn.Parameter(torch.tensor([[1.0, 0.5, 0.25]] * HEADS, dtype=torch.float64))

    def forward(self, x: torch.Tensor, mask: GRFMask) -> torch.Tensor:
        q, k, v = self.qkv(x).view(-1, 3, HEADS, WIDTH).unbind(1)  # packed: [n, H, d]
        mask.f = self.f
        return self.out(attention(q, k, v, mask).flatten(1))


def main() -> list[float]:
    parser = argparse.ArgumentParser()
    parser.add_argument("--edge-index", action="store_true")
    parser.add_argument("--steps", type=int, default=30)
    arguments = parser.parse_args()
    if dist.is_torchelastic_launched():
        dist.init_process_group("gloo")
    ranks, rank = (dist.get_world_size(), dist.get_rank()) if dist.is_initialized() else (1, 0)

    whole, features, labels = whole_graph()
    assignment = topomask.partition(whole, ranks)
    if arguments.edge_index:
        nodes = (assignment == rank).nonzero().flatten()
        graph = DistributedGraph.from_edge_index(own_edges(whole, nodes), nodes, whole.num_nodes)
    else:
        graph = DistributedGraph.from_graph(whole, assignment)
    mask = GRFMask(graph.normalised(), torch.ones(3), num_walks=16, max_hops=2, seed=3)
    x, y = features[graph.nodes], labels[graph.nodes]

    model = Classifier()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.02)
    losses = []
    for _ in range(arguments.steps):
        optimiser.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(x, mask), y, reduction="sum") / whole.num_nodes
        loss.backward()
        total = loss.detach().clone()
        if ranks > 1:  # every rank has the gradients of its own nodes; that of f is summed already
            for name, parameter in model.named_parameters():
                if name != "f":
                    dist.all_reduce(parameter.grad)
            dist.all_reduce(total)
        losses.append(total.item())
        optimiser.step()
    if rank == 0:
        print(f"{ranks} ranks: loss {losses[0]:.6f} -> {losses[-1]:.6f}")
    if dist.is_initialized():
        dist.destroy_process_group()
    return losses


if __name__ == "__main__":
    main()
