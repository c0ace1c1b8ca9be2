"""The vision transformer of the C++ library, for its checkpoints."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from topomask import masks
from topomask._ops import ops
from topomask.graph import Graph
from topomask.mask import Mask
from topomask.masks import AbsoluteMask, GlobalTokensMask
from topomask.nn import TransformerBlock

# Layers here are called as torch.nn.MultiheadAttention calls its own, in C++ as the paper does.
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


class VisionTransformer(nn.Module):
    """The model of `topomask train vit`: patches, learned positions, pre-norm blocks with a variant of
    attention, a norm, pooling and a linear head.

        model = topomask.nn.VisionTransformer.from_checkpoint("runs/grf/best.safetensors")
        logits = model(model.normalise(images))  # images: uint8 [B, C, H, W]

    Its state dict has the names and shapes of the C++ model. Initial weights are torch's own.

    Args:
        image_size: height and width of the images, or one number for both.
        patch: side of a square patch.
        options: what else `topomask train vit` takes: channels, classes, dim, depth, heads, mlp (width of a
            token, blocks, heads, width inside the MLP), attention ("grf", "linear", "softmax", ...), pooling
            ("mean" or "cls"), dropout, num_walks, p_halt, max_hops, coupling, share_walks, ensembles, absolute,
            neighbour_hops (of the masks), mask_seed.
    """

    def __init__(self, image_size: int | tuple[int, int], patch: int, **options: Any) -> None:
        super().__init__()
        size = [image_size, image_size] if isinstance(image_size, int) else list(image_size)
        self._build(json.loads(ops.vit_settings(json.dumps({"image_size": size, "patch": patch, **options}))))

    def _build(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        dim, tokens = settings["dim"], settings["global_tokens"]
        self.image_size, self.channels = tuple(settings["image_size"]), settings["channels"]
        self.attention, self.pooling = settings["attention"], settings["pooling"]
        self.class_names: list[str] = settings["class_names"]  # empty where the data have none
        self.patch, count = settings["patch"], tokens + math.prod(settings["grid"])
        self.patch_embedding = nn.ModuleDict({"projection": nn.Linear(self.channels * self.patch**2, dim)})
        self.position_embedding = nn.Parameter(0.02 * torch.randn(1, count, dim))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim)) if tokens else None
        self.dropout = nn.Dropout(settings["dropout"])
        ratio, shared = settings["mlp"] / dim, {key: settings[key] for key in ("dropout", "kind", "epsilon")}
        self.blocks = nn.ModuleList(
            TransformerBlock(dim, settings["heads"], _make_mask(settings, layer), mlp_ratio=ratio, **shared)
            for layer in range(settings["depth"])
        )
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, settings["classes"])
        for name in ("mean", "stddev"):
            self.register_buffer(name, torch.tensor(settings[name]).view(-1, 1, 1), persistent=False)
        self.register_state_dict_post_hook(_to_cpp_names)
        self.register_load_state_dict_pre_hook(_from_cpp_names)

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
        expected = [self.channels, *self.image_size]
        if images.dim() != 4 or list(images.shape[1:]) != expected:
            wanted = ", ".join(map(str, expected))
            raise ValueError(f"VisionTransformer: images must be [B, {wanted}], got {list(images.shape)}")
        patches = nn.functional.unfold(images, self.patch, stride=self.patch).mT  # row by row
        x = self.patch_embedding["projection"](patches)
        if self.cls_token is not None:
            x = torch.cat([self.cls_token.expand(x.shape[0], -1, -1).to(x.dtype), x], 1)
        x = self.dropout(x + self.position_embedding)
        for block in self.blocks:
            x = block(x)
        x = self.norm(x)
        return self.head(x.mean(1) if self.cls_token is None else x[:, 0])


def _make_mask(settings: dict[str, Any], layer: int) -> Mask | None:
    """The mask of a layer, as the library describes it."""
    mask = settings["mask"]
    if mask is None:
        return None
    arguments = dict(mask["layers"][layer])
    if mask["on_graph"]:
        arguments["graph"] = Graph.grid(*settings["grid"])
    if mask["init"] is not None:
        arguments["init"] = torch.tensor(mask["init"]).expand(settings["heads"], -1)
    made: Mask = getattr(masks, mask["class"])(**arguments)
    made = AbsoluteMask(made) if mask["absolute"] else made
    return GlobalTokensMask(made, settings["global_tokens"]) if settings["global_tokens"] else made


def _to_cpp_names(module: nn.Module, state: dict[str, Any], prefix: str, local_metadata: Any) -> None:
    for name in [name for name in state if name.startswith(prefix)]:
        state[_cpp_name(name)] = state.pop(name)


def _from_cpp_names(module: nn.Module, state: dict[str, Any], prefix: str, *rest: Any) -> None:
    for name, _ in module.named_parameters(prefix.removesuffix(".")):
        theirs = _cpp_name(name)
        if name not in state and theirs in state:
            state[name] = state.pop(theirs)
