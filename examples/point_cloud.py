"""Classify the material of points on random surfaces: masked attention on their nearest neighbours.

python examples/point_cloud.py

Every cloud is a random bumpy surface of two materials. A point has its position and one noisy sensor reading,
right three times out of four; averaging over its neighbours on the surface does better. With k = 3
neighbours and 3 hops there are 3^3 = 27 different walks from a node. Asked for 27 repelling walks of fixed
length, topomask computes their expectation instead of sampling, so the asymmetric mask is exact.
"""

import argparse
import math
import time

import torch
from torch import Tensor, nn

import topomask

NEIGHBOURS, HOPS, NOISE = 3, 3, 1.5


def waves(at: Tensor, generator: torch.Generator) -> Tensor:
    """A random smooth function of points [N, 2] -> [N]."""
    direction = 3.5 * torch.randn(6, 2, generator=generator)
    phase = 2 * math.pi * torch.rand(6, generator=generator)
    return (at @ direction.T + phase).sin().sum(1)


def surface(num_points: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """x, y, z and the reading of points [N, 4] on a random surface, and their material [N]."""
    xy = 2 * torch.rand(num_points, 2, generator=generator) - 1
    z = 0.15 * waves(xy, generator)
    material = (waves(xy, generator) > 0).long()
    reading = 2 * material - 1 + NOISE * torch.randn(num_points, generator=generator)
    return torch.column_stack([xy, z, reading]), material


class Clouds:
    """Surfaces of equally many points, and one graph for all: their disjoint union."""

    def __init__(self, count: int, num_points: int, seed: int) -> None:
        generator = torch.Generator().manual_seed(seed)
        clouds = [surface(num_points, generator) for _ in range(count)]
        self.points = torch.stack([points for points, _ in clouds])  # [clouds, N, 4]
        self.labels = torch.cat([labels for _, labels in clouds])
        self.graph = topomask.union(
            [topomask.Graph.from_points(points[:, :3], NEIGHBOURS, symmetric=False) for points in self.points]
        )

    def mask(self, heads: int, seed: int) -> topomask.GRFMask:
        return topomask.GRFMask(
            self.graph,
            num_walks=NEIGHBOURS**HOPS,
            max_hops=HOPS,
            heads=heads,
            seed=seed,
            init=[1.0, 0.5, 0.25, 0.125],
            length="fixed",
            ensembles="asymmetric",
            coupling="repelling",
            normalise="random-walk",
        )


class Segmenter(nn.Module):
    """Two transformer blocks between linear maps."""

    def __init__(self, dim: int, heads: int) -> None:
        super().__init__()
        self.input = nn.Sequential(nn.Linear(4, dim), nn.GELU(), nn.Linear(dim, dim))
        self.blocks = nn.ModuleList(topomask.nn.TransformerBlock(dim, heads, mlp_ratio=2) for _ in range(2))
        self.output = nn.Linear(dim, 2)

    def forward(self, points: Tensor, mask: topomask.Mask | None) -> Tensor:
        """points: [clouds, N, 4] -> [clouds * N, 2]; without a mask a point attends to its whole cloud."""
        x = self.input(points)
        if mask is not None:
            x = x.reshape(1, -1, x.shape[-1])  # the nodes of the union; the mask keeps clouds apart
        for block in self.blocks:
            x = block(x, mask)
        return self.output(x).flatten(0, 1)


def accuracy(train: Clouds, test: Clouds, masked: bool, seed: int, options: argparse.Namespace) -> float:
    torch.manual_seed(seed)
    model = Segmenter(options.dim, options.heads)
    train_mask = test_mask = None
    parameters = list(model.parameters())
    if masked:
        train_mask, test_mask = train.mask(options.heads, seed), test.mask(options.heads, seed)
        test_mask.f = train_mask.f  # walks belong to a graph, f serves any graph
        parameters.append(train_mask.f)
    optimiser = torch.optim.Adam(parameters, lr=options.lr)
    for _ in range(options.steps):
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(train.points, train_mask), train.labels).backward()
        optimiser.step()
    with torch.no_grad():
        return (model(test.points, test_mask).argmax(1) == test.labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Materials of point clouds: masked attention or not.")
    parser.add_argument("--clouds", type=int, default=8, help="to learn from, and as many to test on")
    parser.add_argument("--points", type=int, default=256, help="in a cloud")
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--lr", type=float, default=5e-3)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()

    results: dict[str, list[float]] = {"GRF mask": [], "no mask": []}
    seconds = dict.fromkeys(results, 0.0)
    for seed in range(options.seeds):
        train = Clouds(options.clouds, options.points, 2 * seed)
        test = Clouds(options.clouds, options.points, 2 * seed + 1)
        for name, values in results.items():
            start = time.perf_counter()
            values.append(100 * accuracy(train, test, name == "GRF mask", seed, options))
            seconds[name] += time.perf_counter() - start

    print(f"{options.clouds} clouds of {options.points} points, kNN graph with k = {NEIGHBOURS}, {HOPS} hops")
    print(f"{'attention':10}  test accuracy, mean ± std of {options.seeds} seeds      time")
    for name, values in results.items():
        mean, spread = torch.tensor(values).mean(), torch.tensor(values).std()
        print(f"{name:10}  {mean:5.1f} ± {spread:.1f} %{seconds[name]:35.1f} s")


if __name__ == "__main__":
    main()
