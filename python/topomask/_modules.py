"""Models of the C++ library: their weights are here, their computation is there."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from topomask._ops import ops


def _as_json(options: dict[str, Any]) -> str:
    for name, value in options.items():
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{name}: expected a finite number, got {value}")
    return json.dumps(options)


class _LibraryModule(nn.Module):
    """A C++ module with its settings, parameter names, shapes and initial weights."""

    def __init__(self, kind: str, settings: str) -> None:
        super().__init__()
        complete, names, tensors = ops.library_module(kind, settings)
        self._call = (kind, complete, names)
        for name, tensor in zip(names, tensors):
            *path, leaf = name.split(".")
            module: nn.Module = self
            for part in path:
                if part not in module._modules:
                    module.add_module(part, nn.Module())
                module = module.get_submodule(part)
            module.register_parameter(leaf, nn.Parameter(tensor))

    def _run(self, *inputs: Tensor) -> Tensor:
        places = (name.rpartition(".") for name in self._call[2])
        weights = [getattr(self.get_submodule(path), leaf) for path, _, leaf in places]  # maybe plain tensors
        return ops.run_library_module(*self._call, [*weights, *inputs])


class VisionTransformer(_LibraryModule):
    """The model of `topomask train vit` and `train vivit`: patches, learned positions, pre-norm blocks with a
    variant of attention, a norm, pooling and a linear head.

        model = topomask.nn.VisionTransformer.from_checkpoint("runs/grf/best.safetensors")
        logits = model(model.normalise(images))  # images: uint8 [B, C, H, W]

    Its state dict has the names and shapes of the C++ model. `settings` holds all options.

    Args:
        image_size: height and width of the images, or one number for both.
        patch: side of a square patch.
        options: channels, classes, dim, depth, heads, mlp (width of a token, blocks, heads, width inside the
            MLP), attention ("grf", "linear", "softmax", ...), random_features, pooling ("mean" or "cls"), dropout,
            seed, initial_weights, initial_positions (all three before training); of the masks num_walks, p_halt,
            max_hops, coupling, share_walks, ensembles, absolute, key_f, patch_graph, neighbour_hops, mask_every,
            mask_seed;
            of clips encoder, frames, tubelet, temporal_layers, temporal_attention; of data mean, stddev, class_names.
    """

    def __init__(self, image_size: int | tuple[int, int], patch: int, **options: Any) -> None:
        size = [image_size, image_size] if isinstance(image_size, int) else list(image_size)
        super().__init__("vit", _as_json({"image_size": size, "patch": patch, **options}))
        self.settings: dict[str, Any] = json.loads(self._call[1])
        self.class_names: list[str] = self.settings["class_names"]  # empty where the data have none

    @staticmethod
    def from_checkpoint(path: str | Path) -> VisionTransformer:
        """The model of best.safetensors or last.safetensors of a run, ready to evaluate.

        Averaged weights are taken where training kept them: they are what it evaluated.
        """
        settings, names, tensors = ops.load_vit(str(path))
        model = VisionTransformer(**json.loads(settings))
        model.load_state_dict(dict(zip(names, tensors, strict=True)))
        return model.eval()

    def normalise(self, images: Tensor) -> Tensor:
        """Images uint8 [B, C, H, W], or clips [B, T, C, H, W], as the model was trained on them."""
        return ops.normalise_images(images, self.settings["mean"], self.settings["stddev"])

    def forward(self, images: Tensor) -> Tensor:
        """images: [B, C, H, W], or clips [B, T, C, H, W], normalised -> logits [B, classes]."""
        drops = self.training and self.settings["dropout"] > 0
        seed = torch.randint(2**62, ()) if drops else images.new_empty(0)
        return self._run(images, seed)


class UNet(_LibraryModule):
    def forward(self, images: Tensor) -> Tensor:
        """images: [B, 3, H, W] from 0 to 1 -> [B, F, H, W]; sides are multiples of 8."""
        return self._run(images)


class Interlacer(_LibraryModule):
    """A transformer of point clouds: unmasked linear attention alternates with a local layer (paper, section 4
    "point clouds"). The graph of nearest neighbours is rebuilt in every call, where the points are.

        model = topomask.nn.Interlacer(features=8, width=64, layers=2, local="grf")
        moves, changes = model(positions, features)

    Args:
        options: settings of `topomask train particles` with underscores: features (of a particle), local ("grf",
            "mp", "none", "softmax"), width, layers, heads, mlp, neighbours, hops, ensembles, anchor_every,
            anchor_neighbours, bands, seed.
    """

    def __init__(self, features: int | None = None, *, _settings: str = "", **options: Any) -> None:
        given = options if features is None else {"features": features, **options}
        lines = (f"{key.replace('_', '-')} = {json.dumps(value)}" for key, value in given.items())
        super().__init__("interlacer", _settings or "\n".join(lines))

    def forward(
        self, positions: Tensor, features: Tensor, past: tuple[Tensor, Tensor] | None = None,
        robot: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Tensor]:  # fmt: skip
        """Moves of positions [B, N, 3] (at most 0.25 m along an axis), changes of features [B, N, F]; 0 before training.
        past: both at an earlier moment. robot: points [B, 3, K, 3] at times t-2, t-1 and t, and grips [B, 3, K]."""
        nothing = positions.new_empty(0)
        out = self._run(positions, features, *(past or (nothing, nothing)), *(robot or (nothing, nothing)))
        return out[..., :3], out[..., 3:]


class Rendered(NamedTuple):
    colour: Tensor  # [B, R, 3], 0 to 1
    opacity: Tensor  # [B, R], 0 to 1
    depth: Tensor  # [B, R], metres along the ray; the background counts at `farthest`


class ParticleRenderer(_LibraryModule):
    """Colours along rays, differentiable in particles and weights (paper, section 4 "point clouds").

        renderer = topomask.nn.ParticleRenderer(features=16)
        seen = renderer(positions, features, origins, directions)
        loss = (seen.colour - truth).square().mean()

    A ray is looked at in steps where particles are near; there the nearest ones are summed over rings, an MLP
    says density and colour, and samples are composited on white. Its state dict has the names and shapes of
    the C++ module. `settings` holds all options.

    Args:
        options: features (of a particle), neighbours (particles that a sample sees), hidden (width of the MLPs),
            samples (of a ray, at most), radii and bandwidths (of the rings), nearest, farthest and spacing (of the
            steps along a ray), cell (side of the cells by which empty space is found), seed (of the initial
            weights). Lengths are in metres.
    """

    def __init__(self, features: int | None = None, **options: Any) -> None:
        given = options if features is None else {"features": features, **options}
        super().__init__("renderer", _as_json(given))
        self.settings: dict[str, Any] = json.loads(self._call[1])

    def forward(self, positions: Tensor, features: Tensor, origins: Tensor, directions: Tensor) -> Rendered:
        """positions: [B, N, 3], features: [B, N, F], origins and directions (of length 1): [B, R, 3]. Rays get no
        gradients."""
        seen = self._run(positions, features, origins, directions)
        return Rendered(seen[..., :3], seen[..., 3], seen[..., 4])


class HDVPD(nn.Module):
    """A trained model of `topomask train particles`: images to features of particles, their motion, and pictures.

        model = topomask.nn.HDVPD.from_checkpoint("runs/grf/best.safetensors")
        features = model.encoder(images)  # [B, F, H, W], for the particles of the pixels
        moves, changes = model.interlacer(positions, features, past, robot)
        seen = model.renderer(positions + moves, features + changes, origins, directions)
    """

    def __init__(self, settings: str, of_interlacer: str, of_renderer: str) -> None:
        super().__init__()
        self.encoder = UNet("unet", settings)
        self.interlacer = Interlacer(_settings=of_interlacer)
        self.renderer = ParticleRenderer(**json.loads(of_renderer))

    @classmethod
    def from_checkpoint(cls, path: str | Path, device: torch.device | str = "cpu") -> HDVPD:
        """The model of last.safetensors or best.safetensors of a run, ready to evaluate.

        Averaged weights are taken where training kept them: they are what it evaluated.
        """
        *settings, names, tensors = ops.load_hdvpd(str(path))
        model = cls(*settings)
        model.load_state_dict(dict(zip(names, tensors, strict=True)))
        return model.to(device).eval()
