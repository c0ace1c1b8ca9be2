"""Hugging Face Transformers: attn_implementation="topomask" for vision transformers.

    topomask.transformers.register()
    model = ViTModel(config)  # or from_pretrained
    topomask.transformers.attach(model)  # a mask for every layer, on the grid of patches

`attach` switches the model to attn_implementation="topomask". Each layer's f is a parameter of the model,
trained and saved with it. Loading a checkpoint takes both steps again, and then the masks' own parameters:

    model = topomask.transformers.attach(ViTModel.from_pretrained(folder))
    topomask.transformers.load_masks(model, folder)
"""

import copy
import math
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from topomask._attention import attention
from topomask._ops import USUAL
from topomask.graph import Graph
from topomask.mask import Mask
from topomask.masks import GlobalTokensMask, GRFMask

__all__ = ["attach", "attention_forward", "load_masks", "register"]


def attention_forward(
    module: nn.Module, query: Tensor, key: Tensor, value: Tensor, attention_mask: Tensor | None,
    scaling: float | None = None, dropout: float = 0.0, **ignored: Any,
) -> tuple[Tensor, None]:  # fmt: skip
    """What Transformers calls: query, key, value [B, H, N, d] -> ([B, N, H, d], None).

    Attention weights are never formed, so dropout is applied to each head's output.
    """
    mask = getattr(module, "topomask_mask", None)
    if not isinstance(mask, Mask):
        raise ValueError(
            f"topomask: {type(module).__name__} has no mask, call topomask.transformers.attach(model) first"
        )
    if attention_mask is not None:
        raise ValueError("topomask: an attention_mask on top of the topological mask is not supported")
    kind: str = module.topomask_kind  # type: ignore[assignment]
    if scaling is not None and kind == "softmax":
        query = query * (scaling * math.sqrt(query.shape[-1]))
    out = attention(query, key, value, mask=mask, kind=kind)
    out = nn.functional.dropout(out, dropout, module.training)
    return out.transpose(1, 2).contiguous(), None


def register(name: str = "topomask") -> None:
    """Makes attn_implementation=name known to Transformers."""
    from transformers import AttentionInterface

    AttentionInterface.register(name, attention_forward)


def attach(
    model: Any, make_mask: Callable[[int], Mask] | None = None, *, kind: str = USUAL.kind,
    name: str = "topomask", **walks: Any,
) -> Any:  # fmt: skip
    """Gives every attention layer its own mask and switches the model to attn_implementation=name.

    Args:
        model: a ViT-like model: its config has image_size and patch_size, its attention layers `is_causal`.
        make_mask: maps a layer index to a mask over all tokens. By default a GRFMask with walks of
            its own on the grid of patches, with the CLS token (and others in front) seen by all.
        kind: "linear", or "softmax" for weights that were trained with it.
        walks: of that GRFMask, where they are not p_halt=0.3, max_hops=4 and its own defaults.

    Returns:
        The model.
    """
    register(name)
    # Switching the attention writes to the config, which may be the caller's.
    given, config = model.config, copy.deepcopy(model.config)
    for module in model.modules():
        if getattr(module, "config", None) is given:
            module.config = config
    if make_mask is None:
        sides = torch.tensor(config.image_size).expand(2) // torch.tensor(config.patch_size)
        grid = Graph.grid(*sides.tolist())
        tokens = 1 + any("distillation_token" in name for name, _ in model.named_parameters())  # DeiT: 2

        walks = {"p_halt": 0.3, "max_hops": 4, "heads": config.num_attention_heads, **walks}

        def make_mask(layer: int) -> Mask:
            return GlobalTokensMask(GRFMask(grid, seed=layer, **walks), tokens)

    layers = [module for module in model.modules() if hasattr(module, "is_causal")]
    if not layers:
        raise ValueError(f"topomask: {type(model).__name__} has no attention layers that can be switched")
    device = next(model.parameters()).device
    for index, layer in enumerate(layers):
        layer.topomask_mask = make_mask(index).to(device)
        layer.topomask_kind = kind
    model.set_attn_implementation(name)
    return model


def load_masks(model: Any, folder: str | Path) -> int:
    """The parameters of the masks from what save_pretrained wrote; returns how many there were.

    from_pretrained leaves them aside, since the model has no masks when it reads the file. Layers are matched
    by their order: Transformers gives them other names in files than in memory.
    """
    from safetensors import safe_open

    def order(name: str) -> tuple[list[int], str]:
        return [int(n) for n in re.findall(r"\d+", name)], name.split(".topomask_mask.")[1]

    stored: dict[str, Tensor] = {}
    for path in sorted(Path(folder).glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            stored |= {name: file.get_tensor(name) for name in file.keys() if ".topomask_mask." in name}
    wanted = {name: p for name, p in model.named_parameters() if ".topomask_mask." in name}
    names = list(zip(sorted(wanted, key=order), sorted(stored, key=order), strict=False))
    if len(wanted) != len(stored) or any(order(a) != order(b) for a, b in names):
        raise ValueError(
            f"topomask: {folder} holds {len(stored)} parameters of masks, the model has {len(wanted)}: "
            "attach the masks that were saved"
        )
    with torch.no_grad():
        for ours, theirs in names:
            wanted[ours].copy_(stored[theirs])
    return len(names)
