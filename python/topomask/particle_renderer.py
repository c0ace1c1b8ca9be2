"""Pictures of particles."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor, nn

from topomask._ops import ops


class Rendered(NamedTuple):
    colour: Tensor  # [B, R, 3], 0 to 1
    opacity: Tensor  # [B, R], 0 to 1
    depth: Tensor  # [B, R], metres along the ray; the background counts at `farthest`


class ParticleRenderer(nn.Module):
    """Colours along rays, differentiable in particles and weights (paper, section 4 "point clouds").

        renderer = topomask.nn.ParticleRenderer(features=16)
        seen = renderer(positions, features, origins, directions)
        loss = (seen.colour - truth).square().mean()

    A ray is looked at in steps where particles are near; there the nearest ones are summed over rings, an MLP
    says density and colour, and samples are composited on white. Its state dict has the names and shapes of
    the C++ module. Initial weights are torch's own.

    Args:
        features: of a particle.
        neighbours: particles that a sample sees.
        hidden: width of the MLPs.
        samples: at most, of a ray.
        radii, bandwidths: of the rings, in metres.
        nearest, farthest, spacing: of the steps along a ray, in metres.
        cell: side of the cells by which empty space is found, in metres.
    """

    def __init__(
        self,
        features: int = 16,
        *,
        neighbours: int = 16,
        hidden: int = 64,
        samples: int = 32,
        radii: Sequence[float] = (0.0, 0.01, 0.02, 0.05),
        bandwidths: Sequence[float] = (0.01, 0.01, 0.01, 0.05),
        nearest: float = 0.1,
        farthest: float = 2.0,
        spacing: float = 0.01,
        cell: float = 0.025,
    ) -> None:
        super().__init__()
        self.neighbours, self.samples = neighbours, samples
        self.radii, self.bandwidths = [float(r) for r in radii], [float(b) for b in bandwidths]
        self.nearest, self.farthest, self.spacing, self.cell = nearest, farthest, spacing, cell
        self.trunk1 = nn.Linear(len(self.radii) * (features + 1), hidden)
        self.trunk2 = nn.Linear(hidden, hidden)
        self.density = nn.Linear(hidden, 1)
        self.colour1 = nn.Linear(hidden + 3, hidden)
        self.colour2 = nn.Linear(hidden, 3)

    def forward(self, positions: Tensor, features: Tensor, origins: Tensor, directions: Tensor) -> Rendered:
        """positions: [B, N, 3], features: [B, N, F], origins and directions (of length 1): [B, R, 3]. Rays get no
        gradients."""
        layers = (self.trunk1, self.trunk2, self.density, self.colour1, self.colour2)
        weights = [tensor for layer in layers for tensor in (layer.weight, layer.bias)]
        steps = (self.nearest, self.farthest, self.spacing, self.cell)
        rings = (self.neighbours, self.samples, self.radii, self.bandwidths)
        seen = ops.render_particles(positions, features, origins, directions, weights, *rings, *steps)
        return Rendered(seen[..., :3], seen[..., 3], seen[..., 4])
