"""Your own point clouds: learn how points move from pairs of clouds.

python examples/particle_dynamics.py

One blob of points falls and another swings around an axis. The Interlacer sees positions and one feature (the
blob of each point) and learns the step to the next moment. Masked attention is local: no point sees further
than three hops on the graph of nearest neighbours. The unmasked layers in between see everything.
"""

import torch
from topomask.nn import Interlacer


def clouds(count: int, points: int, generator: torch.Generator) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Positions [count, points, 3], features [count, points, 1] and the true step [count, points, 3]."""
    centre = torch.rand(count, 2, 1, 3, generator=generator) * 0.6 - 0.3
    blobs = centre + 0.05 * torch.randn(count, 2, points // 2, 3, generator=generator)
    falling, swinging = blobs[:, 0], blobs[:, 1]
    fall = torch.tensor([0.0, 0.0, -0.08]).expand_as(falling)
    turn = torch.cross(torch.tensor([0.0, 0.0, 0.2]).expand_as(swinging), swinging, dim=-1)
    kind = torch.cat([torch.zeros(count, points // 2, 1), torch.ones(count, points // 2, 1)], 1)
    return torch.cat([falling, swinging], 1), kind, torch.cat([fall, turn], 1)


def main(steps: int = 150) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(0)
    model = Interlacer(features=1, width=32, layers=1, heads=2, mlp=64, bands=4, local="grf")
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3)
    errors = []
    for _ in range(steps):
        positions, features, truth = clouds(4, 64, generator)
        moves, _ = model(positions, features)
        loss = (moves - truth).square().sum(-1).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        errors.append(1000 * loss.sqrt().item())
    return errors[0], sum(errors[-10:]) / 10


if __name__ == "__main__":
    first, last = main()
    print(f"error of a step: {first:.0f} mm before training, {last:.0f} mm after")
