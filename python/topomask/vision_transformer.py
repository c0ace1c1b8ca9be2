"""The vision transformer of the C++ library, for its checkpoints."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from topomask._attention import Kind
from topomask._ops import ops
from topomask.graph import Graph, signed_seed
from topomask.mask import Mask
from topomask.masks import (
    AbsoluteMask,
    GlobalTokensMask,
    GRFMask,
    LearnedFeaturesMask,
    NeighbourMask,
    PowerSeriesMask,
    ToeplitzMask,
)
from topomask.nn import TransformerBlock

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

VARIANTS = (
    "softmax", "softmax+grf", "linear", "toeplitz", "power-series", "grf", "grf-asymmetric", "ad-hoc",
    "learned-features", "neighbours",
)  # fmt: skip

# Layers here are called as torch.nn.MultiheadAttention calls its own, in C++ as the paper does: the one place that knows
# both.
_CPP_NAMES = (
    (r"\.attention\.in_proj_(weight|bias)$", r".attention.qkv.\1"),
    (r"\.attention\.out_proj\.", r".attention.projection."),
    (r"\.mlp\.0\.", r".mlp.fc1."),
    (r"\.mlp\.3\.", r".mlp.fc2."),
    (r"\.attention\.mask\.(?:mask\.)+", r".attention.mask."),  # |M|, and global tokens around it
    (r"\.attention\.mask\.(?:f|alpha)$", r".attention.mask.f"),
)


def _cpp_name(name: str) -> str:
    for ours, theirs in _CPP_NAMES:
        name = re.sub(ours, theirs, name)
    return name


class PatchEmbedding(nn.Module):
    """Images [B, C, H, W] to tokens [B, (H / patch) (W / patch), dim], row by row."""

    def __init__(self, channels: int, patch: int, dim: int) -> None:
        super().__init__()
        self.patch = patch
        self.projection = nn.Linear(channels * patch * patch, dim)

    def forward(self, images: Tensor) -> Tensor:
        batch, channels, height, width = images.shape
        patches = images.reshape(batch, channels, height // self.patch, self.patch, width // self.patch, self.patch)
        return self.projection(patches.permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2))


class VisionTransformer(nn.Module):
    """The model of `topomask train vit`: patches, learned positions, pre-norm blocks with a variant of attention, a norm,
    pooling and a linear head.

        model = topomask.nn.VisionTransformer.from_checkpoint("runs/grf/best.safetensors")
        logits = model(model.normalise(images))  # images: uint8 [B, C, H, W]

    Its state dict has the names and shapes of the C++ model. Initial weights are torch's own, not those of C++.

    Args:
        image_size: height and width of the images, or one number for both.
        patch: side of a square patch.
        channels, classes: of the images.
        dim, depth, heads, mlp: width of a token, blocks, heads of attention, width inside the MLP.
        attention: a variant of `topomask train vit --attention`, as "grf", "linear" or "softmax".
        pooling: "mean" of all tokens, or "cls" for a token of its own.
        dropout: part of the activations that is dropped.
        num_walks, p_halt, max_hops, coupling, share_walks: of the walks.
        neighbour_hops: of attention "neighbours".
        mask_seed: of the walks; each layer and head has its own, unless share_walks.
        mean, stddev: of each channel, for `normalise`.
    """

    def __init__(
        self,
        image_size: int | tuple[int, int],
        patch: int,
        *,
        channels: int = 3,
        classes: int = 10,
        dim: int = 256,
        depth: int = 6,
        heads: int = 4,
        mlp: int = 1024,
        attention: str = "grf",
        pooling: str = "mean",
        dropout: float = 0.0,
        num_walks: int = 20,
        p_halt: float = 0.1,
        max_hops: int = 10,
        coupling: Any = "independent",
        share_walks: bool = False,
        neighbour_hops: int = 1,
        mask_seed: int = 0,
        mean: list[float] | None = None,
        stddev: list[float] | None = None,
    ) -> None:
        super().__init__()
        height, width = (image_size, image_size) if isinstance(image_size, int) else image_size
        if patch < 1 or height % patch or width % patch:
            raise ValueError(f"VisionTransformer: patch {patch} does not divide images of {height}x{width}")
        if attention not in VARIANTS:
            raise ValueError(f"attention: unknown value '{attention}', expected {', '.join(VARIANTS)}")
        if pooling not in ("mean", "cls"):
            raise ValueError(f"pooling: unknown value '{pooling}', expected mean, cls")
        self.image_size, self.channels, self.attention, self.pooling = (height, width), channels, attention, pooling
        grid = height // patch, width // patch
        tokens = 1 if pooling == "cls" else 0
        walks: dict[str, Any] = {
            "num_walks": num_walks, "p_halt": p_halt, "max_hops": max_hops, "heads": heads, "coupling": coupling,
            "shared_walks": share_walks, "init": (-0.01 * torch.arange(max_hops + 1)).exp(),
        }  # fmt: skip
        if share_walks:
            seeds = [mask_seed] * depth
        else:
            seeds = [seed % 2**64 for seed in ops.derive_seeds(signed_seed(mask_seed), depth).tolist()]

        def make_block(layer: int) -> TransformerBlock:
            mask = _make_mask(attention, grid, {**walks, "seed": seeds[layer]}, neighbour_hops)
            kind: Kind = "softmax" if attention.startswith("softmax") else "linear"
            return TransformerBlock(
                dim, heads, mask if mask is None or not tokens else GlobalTokensMask(mask, tokens),
                mlp_ratio=mlp / dim, dropout=dropout, kind=kind,
                epsilon=1e-3 * (dim // heads) ** 0.25,  # phi(x) = ReLU(x d^-1/4) + 1e-3, but for a common factor
            )  # fmt: skip

        self.patch_embedding = PatchEmbedding(channels, patch, dim)
        self.position_embedding = nn.Parameter(0.02 * torch.randn(1, tokens + grid[0] * grid[1], dim))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if tokens else None
        self.dropout = nn.Dropout(dropout)
        self.blocks = nn.ModuleList([make_block(layer) for layer in range(depth)])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, classes)
        for name, values, default in (("mean", mean, 0.0), ("stddev", stddev, 1.0)):
            constants = torch.tensor([default] * channels if values is None else values).view(-1, 1, 1)
            self.register_buffer(name, constants, persistent=False)
        self.register_state_dict_post_hook(_to_cpp_names)
        self.register_load_state_dict_pre_hook(_from_cpp_names)

    @staticmethod
    def from_checkpoint(path: str | Path) -> VisionTransformer:
        """The model of best.safetensors or last.safetensors of a run, ready to evaluate.

        Averaged weights are taken where training kept them: they are what it evaluated.
        """
        from safetensors import safe_open

        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            for key in ("config", "normalisation", "images"):
                if key not in metadata:
                    raise ValueError(
                        f"{path}: is no checkpoint of 'topomask train' (its metadata has no '{key}')"
                    )
            prefix = "ema." if any(name.startswith("ema.") for name in file.keys()) else ""
            names = [name for name in file.keys() if name.startswith(prefix)]
            tensors = {name.removeprefix(prefix): file.get_tensor(name) for name in names}
        config = tomllib.loads(metadata["config"])
        settings, walks = config["model"], config["mask"]
        images, constants = json.loads(metadata["images"]), json.loads(metadata["normalisation"])
        seeds = ops.derive_seeds(signed_seed(config["training"]["seed"]), 2)  # of the weights, of the walks
        model = VisionTransformer(
            (images["height"], images["width"]), images["patch"], channels=images["channels"],
            classes=tensors["head.bias"].shape[0], dim=settings["embedding"], depth=settings["layers"],
            heads=settings["heads"], mlp=settings["mlp"], attention=settings["attention"],
            pooling=settings["pooling"], dropout=settings["dropout"], num_walks=walks["walks"],
            p_halt=walks["p-halt"], max_hops=walks["max-hops"], coupling=walks["coupling"],
            share_walks=walks["share-walks"], neighbour_hops=walks["neighbour-hops"],
            mask_seed=int(seeds[1]) % 2**64, mean=constants["mean"], stddev=constants["stddev"],
        )  # fmt: skip
        own = model.state_dict().keys()
        model.load_state_dict({name: tensor for name, tensor in tensors.items() if prefix or name in own})
        return model.eval()

    def normalise(self, images: Tensor) -> Tensor:
        """Images uint8 [B, C, H, W] as the model was trained on them."""
        return (images / 255 - self.get_buffer("mean")) / self.get_buffer("stddev")

    def forward(self, images: Tensor) -> Tensor:
        """images: [B, C, H, W], normalised -> logits [B, classes]."""
        if images.dim() != 4 or tuple(images.shape[1:]) != (self.channels, *self.image_size):
            raise ValueError(
                f"VisionTransformer: images must be [B, {self.channels}, {self.image_size[0]}, {self.image_size[1]}], "
                f"got {list(images.shape)}"
            )
        x = self.patch_embedding(images)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1).to(x.dtype), x], 1)
        x = self.dropout(x + self.position_embedding)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x.mean(1) if self.cls_token is None else x[:, 0])


def _make_mask(variant: str, grid: tuple[int, int], walks: dict[str, Any], hops: int) -> Mask | None:
    """The mask of a layer; None where attention has none."""
    if variant in ("softmax", "linear"):
        return None
    if variant == "toeplitz":
        offsets = (2 * grid[0] - 1) * (2 * grid[1] - 1)
        return ToeplitzMask(grid, walks["heads"], transform="absolute", init=torch.ones(walks["heads"], offsets))
    graph = Graph.grid(*grid)
    if variant == "power-series":
        return AbsoluteMask(
            PowerSeriesMask(graph, walks["max_hops"], walks["heads"], init=walks["init"], squared=True)
        )
    if variant == "learned-features":
        return AbsoluteMask(LearnedFeaturesMask(graph.num_nodes, graph.num_nodes, walks["heads"]))
    if variant == "neighbours":
        return NeighbourMask(graph, hops)
    if variant == "grf-asymmetric":
        walks = {**walks, "ensembles": "asymmetric"}
    return AbsoluteMask(GRFMask(graph, importance_weights=variant != "ad-hoc", **walks))


def _to_cpp_names(module: nn.Module, state: dict[str, Any], prefix: str, local_metadata: Any) -> None:
    for name in [name for name in state if name.startswith(prefix)]:
        state[_cpp_name(name)] = state.pop(name)


def _from_cpp_names(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    for name, _ in module.named_parameters(prefix.removesuffix(".")):
        theirs = _cpp_name(name)
        if name not in state and theirs in state:
            state[name] = state.pop(theirs)
