"""The vision transformer of the C++ library, for its checkpoints."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from topomask._ops import ops
from topomask.graph import Graph
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
        options: what else `topomask train vit` takes, where it is not the library's default: channels, classes,
            dim, depth, heads, mlp (width of a token, blocks, heads, width inside the MLP), attention ("grf",
            "linear", "softmax", ...), pooling ("mean" or "cls"), dropout, num_walks, p_halt, max_hops, coupling,
            share_walks, neighbour_hops (of the masks), mask_seed.
    """

    def __init__(self, image_size: int | tuple[int, int], patch: int, **options: Any) -> None:
        super().__init__()
        size = [image_size, image_size] if isinstance(image_size, int) else list(image_size)
        self._build(json.loads(ops.vit_settings(json.dumps({"image_size": size, "patch": patch, **options}))))

    def _build(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        dim, heads, mask = settings["dim"], settings["heads"], settings["mask"]
        grid, tokens = tuple(settings["grid"]), settings["global_tokens"]
        self.image_size, self.channels = tuple(settings["image_size"]), settings["channels"]
        self.attention, self.pooling = settings["attention"], settings["pooling"]

        def make_block(layer: int) -> TransformerBlock:
            own = None if mask is None else _make_mask(settings, grid, layer)
            return TransformerBlock(
                dim, heads, own if own is None or not tokens else GlobalTokensMask(own, tokens),
                mlp_ratio=settings["mlp"] / dim, dropout=settings["dropout"], kind=settings["kind"],
                epsilon=settings["epsilon"],
            )  # fmt: skip

        self.patch_embedding = PatchEmbedding(settings["channels"], settings["patch"], dim)
        self.position_embedding = nn.Parameter(0.02 * torch.randn(1, tokens + grid[0] * grid[1], dim))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if tokens else None
        self.dropout = nn.Dropout(settings["dropout"])
        self.blocks = nn.ModuleList([make_block(layer) for layer in range(settings["depth"])])
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, settings["classes"])
        for name in ("mean", "stddev"):
            self.register_buffer(name, torch.tensor(settings[name]).view(-1, 1, 1), persistent=False)
        self.register_state_dict_post_hook(_to_cpp_names)
        self.register_load_state_dict_pre_hook(_from_cpp_names)

    @property
    def class_names(self) -> list[str]:
        """Of the classes, where the data have names."""
        return list(self.settings["class_names"])

    @staticmethod
    def from_checkpoint(path: str | Path) -> VisionTransformer:
        """The model of best.safetensors or last.safetensors of a run, ready to evaluate.

        Averaged weights are taken where training kept them: they are what it evaluated.
        """
        settings, names, tensors = ops.load_vit(str(path))
        model = VisionTransformer.__new__(VisionTransformer)
        nn.Module.__init__(model)
        model._build(json.loads(settings))
        model.load_state_dict(dict(zip(names, tensors, strict=True)))
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


def _make_mask(settings: dict[str, Any], grid: tuple[int, ...], layer: int) -> Mask:
    """The mask of a layer, as the library describes it."""
    mask, heads, hops = settings["mask"], settings["heads"], settings["max_hops"]
    init = None if mask["init"] is None else torch.tensor(mask["init"]).expand(heads, -1)
    graph = Graph.grid(*grid)
    made: Mask
    if mask["name"] == "toeplitz":
        made = ToeplitzMask(grid, heads, transform="absolute", init=init)
    elif mask["name"] == "power-series":
        made = PowerSeriesMask(graph, hops, heads, init=init, squared=mask["squared"])
    elif mask["name"] == "learned-features":
        made = LearnedFeaturesMask(graph.num_nodes, graph.num_nodes, heads)
    elif mask["name"] == "neighbours":
        made = NeighbourMask(graph, settings["neighbour_hops"])
    else:
        made = GRFMask(
            graph, settings["num_walks"], settings["p_halt"], hops, heads, mask["seeds"][layer], init=init,
            ensembles=mask["ensembles"], coupling=settings["coupling"], shared_walks=settings["share_walks"],
            importance_weights=mask["importance_weights"],
        )  # fmt: skip
    # The offsets of a Toeplitz mask have their magnitude taken already.
    return AbsoluteMask(made) if mask["absolute"] and mask["name"] != "toeplitz" else made


def _to_cpp_names(module: nn.Module, state: dict[str, Any], prefix: str, local_metadata: Any) -> None:
    for name in [name for name in state if name.startswith(prefix)]:
        state[_cpp_name(name)] = state.pop(name)


def _from_cpp_names(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    for name, _ in module.named_parameters(prefix.removesuffix(".")):
        theirs = _cpp_name(name)
        if name not in state and theirs in state:
            state[name] = state.pop(theirs)
