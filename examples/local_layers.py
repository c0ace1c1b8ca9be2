"""When does an Interlacer need its local layers? Motion that only a neighbour knows.

python examples/local_layers.py --bodies 32 --local grf

Points form bodies, scattered in a box. Every body moves in a direction of its own, and one point of each body
knows it: its feature is the step. All points of the body move by it. So a point must hear from the one that
knows, a few neighbours away, and from no other. GRF masks and message passing learn this. Unmasked linear
attention (none) sees all points at once and does not tell them apart. With 3 neighbours a GRF mask does not reach
the point that knows from every other one; with 7 it does.
"""

import argparse

import torch
from topomask.nn import Interlacer

Cloud = tuple[torch.Tensor, torch.Tensor, torch.Tensor]


def cloud(count: int, bodies: int, size: int, generator: torch.Generator) -> Cloud:
    """Positions [count, N, 3], features [count, N, 4] and true steps [count, N, 3], in metres; N = bodies size."""
    centre = torch.rand(count, bodies, 1, 3, generator=generator) - 0.5
    positions = centre + 0.02 * torch.randn(count, bodies, size, 3, generator=generator)
    step = (0.2 * torch.rand(count, bodies, 1, 3, generator=generator) - 0.1).expand_as(positions)
    features = torch.zeros(count, bodies, size, 4)
    features[:, :, 0] = torch.cat([10 * step[:, :, 0], torch.ones(count, bodies, 1)], -1)
    return positions.flatten(1, 2), features.flatten(1, 2), step.flatten(1, 2)


def error_mm(model: torch.nn.Module, sample: Cloud) -> float:
    """Mean distance between predicted and true places of the points that do not know their step."""
    positions, features, step = sample
    with torch.no_grad():
        moves, _ = model(positions, features)
    distance = (moves - step).norm(dim=-1)
    return 1000 * distance[features[..., 3] == 0].mean().item()


def main(
    local: str, neighbours: int, bodies: int, size: int, steps: int, batch: int, seed: int
) -> tuple[float, float]:
    """Errors in millimetres, before and after training."""
    generator = torch.Generator().manual_seed(seed)
    model = Interlacer(
        features=4, width=64, layers=2, heads=4, mlp=128, bands=6, local=local, neighbours=neighbours, seed=seed
    )
    optimizer = torch.optim.AdamW(model.parameters(), lr=2e-3, weight_decay=1e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, total_steps=steps, pct_start=0.1)
    test = cloud(16, bodies, size, torch.Generator().manual_seed(2**32 - 1))
    before = error_mm(model, test)
    for _ in range(steps):
        positions, features, step = cloud(batch, bodies, size, generator)
        moves, _ = model(positions, features)
        loss = (20 * (moves - step)).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return before, error_mm(model, test)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Motion that only a neighbour knows.")
    parser.add_argument("--local", choices=("grf", "mp", "none", "softmax"), default="grf", help="the local layer")
    parser.add_argument("--neighbours", type=int, default=3, help="per point in the graph of grf and softmax")
    parser.add_argument("--bodies", type=int, default=64)
    parser.add_argument("--size", type=int, default=8, help="points per body")
    parser.add_argument("--steps", type=int, default=2000, help="of training")
    parser.add_argument("--batch", type=int, default=2, help="clouds per step")
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    first, last = main(**vars(given))
    run = f"local={given.local} bodies={given.bodies} seed={given.seed}"
    print(f"{run}: error {first:.1f} mm before training, {last:.1f} mm after")
