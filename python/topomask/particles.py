"""Particle models of the C++ library: their weights are here, their computation is there."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from topomask._ops import ops


class _LibraryModule(nn.Module):
    """A module of C++ with its names, shapes and initial weights; `settings` is a TOML text."""

    def __init__(self, kind: str, settings: str) -> None:
        super().__init__()
        names, tensors = ops.particle_module(kind, settings)
        self._call = (kind, settings, names)
        for name, tensor in zip(names, tensors):
            *path, leaf = name.split(".")
            module: nn.Module = self
            for part in path:
                if part not in module._modules:
                    module.add_module(part, nn.Module())
                module = module.get_submodule(part)
            module.register_parameter(leaf, nn.Parameter(tensor))

    def _run(self, *inputs: Tensor) -> Tensor:
        weights = [self.get_parameter(name) for name in self._call[2]]
        return ops.run_particle_module(*self._call, [*weights, *inputs])


class UNet(_LibraryModule):
    def forward(self, images: Tensor) -> Tensor:
        """images: [B, 3, H, W] from 0 to 1 -> [B, F, H, W]; sides are multiples of 8."""
        return self._run(images)


class Interlacer(_LibraryModule):
    """A transformer of point clouds: unmasked linear attention alternates with a local layer (paper, section 4
    "point clouds"). The graph of nearest neighbours is built anew in every call, where the points are.

        model = topomask.nn.Interlacer(features=8, width=64, layers=2, local="grf")
        moves, changes = model(positions, features)

    Args:
        features: of a particle.
        options: settings of `topomask train particles` with underscores: local ("grf", "mp", "none", "softmax"),
            width, layers, heads, mlp, neighbours, hops, ensembles, anchor_every, anchor_neighbours, bands, seed.
    """

    def __init__(self, features: int = 16, *, _settings: str = "", **options: Any) -> None:
        given = {"features": features, **options}
        lines = (f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in given.items())
        super().__init__("interlacer", _settings or "\n".join(lines))

    def forward(
        self,
        positions: Tensor,
        features: Tensor,
        past: tuple[Tensor, Tensor] | None = None,
        robot: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:
        """What moves positions [B, N, 3] (at most 0.25 m along an axis) and changes features [B, N, F]; both are 0
        before training. past: the same of an earlier moment. robot: points [B, 3, K, 3] at the times t-2, t-1 and t,
        and grips [B, 3, K]."""
        nothing = positions.new_empty(0)
        out = self._run(positions, features, *(past or (nothing, nothing)), *(robot or (nothing, nothing)))
        return out[..., :3], out[..., 3:]


class HDVPD(nn.Module):
    """A trained model of `topomask train particles`: images to features of particles, their motion, and pictures.

        model = topomask.nn.HDVPD.from_checkpoint("runs/grf/best.safetensors")
        features = model.encoder(images)  # [B, F, H, W], for the particles of the pixels
        moves, changes = model.interlacer(positions, features, past, robot)
        seen = model.renderer(positions + moves, features + changes, origins, directions)
    """

    def __init__(self, settings: str, samples: int, weights: dict[str, Tensor]) -> None:
        from topomask.nn import ParticleRenderer

        super().__init__()
        self.encoder = UNet("unet", settings)
        self.interlacer = Interlacer(_settings=settings)
        features, hidden = weights["encoder.out.bias"].shape[0], weights["renderer.trunk1.bias"].shape[0]
        self.renderer = ParticleRenderer(features, hidden=hidden, samples=samples)
        self.load_state_dict(weights)

    @classmethod
    def from_checkpoint(cls, path: str | Path, device: torch.device | str = "cpu") -> HDVPD:
        """The model of last.safetensors or best.safetensors of a run, ready to evaluate."""
        settings, samples, names, tensors = ops.load_hdvpd(str(path))
        return cls(settings, samples, dict(zip(names, tensors))).to(device).eval()
