"""Layers with masked attention inside."""

from typing import Any

import torch
from torch import Tensor, nn

from topomask._attention import FeatureMap, attention
from topomask._modules import HDVPD, Interlacer, ParticleRenderer, VisionTransformer
from topomask._ops import USUAL, check_words
from topomask.mask import Mask

__all__ = [
    "HDVPD", "GraphMaskedAttention", "Interlacer", "ParticleRenderer", "TransformerBlock", "VisionTransformer",
]  # fmt: skip


class GraphMaskedAttention(nn.Module):
    """Multi-head attention under a topological mask: nn.MultiheadAttention(dim, heads, batch_first=True) with
    a graph. Parameters have the same names and shapes, so its state dict loads here.

    Args:
        dim: channels, divisible by heads.
        heads: attention heads.
        mask: for the N nodes of the input, with 1 or `heads` heads. It may be given at the call instead.
        bias: of the projections.
        kind, feature_map, engine, epsilon, num_features, feature_seed: as in `topomask.attention`.
    """

    def __init__(
        self, dim: int, heads: int, mask: Mask | None = None, *, bias: bool = True, kind: str = USUAL.kind,
        feature_map: str | FeatureMap = USUAL.feature_map, engine: str = USUAL.engine, epsilon: float | None = None,
        num_features: int | None = None, feature_seed: int = USUAL.feature_seed,
    ) -> None:  # fmt: skip
        super().__init__()
        check_words("GraphMaskedAttention", kind=kind, engine=engine)
        if not callable(feature_map):
            check_words("GraphMaskedAttention", feature_map=feature_map)
        if heads < 1 or dim % heads:
            raise ValueError(f"GraphMaskedAttention: dim must be a multiple of heads, got {dim} and {heads}")
        self.dim, self.heads, self.mask = dim, heads, mask
        self.kind, self.feature_map, self.engine, self.epsilon = kind, feature_map, engine, epsilon
        self.num_features, self.feature_seed = num_features, feature_seed
        self.in_proj_weight = nn.Parameter(torch.empty(3 * dim, dim))
        self.in_proj_bias = nn.Parameter(torch.zeros(3 * dim)) if bias else None
        self.out_proj = nn.Linear(dim, dim, bias=bias)
        nn.init.xavier_uniform_(self.in_proj_weight)
        if bias:
            nn.init.zeros_(self.out_proj.bias)

    def forward(
        self, query: Tensor, key: Tensor | None = None, value: Tensor | None = None, *,
        mask: Mask | None = None, need_weights: bool = False,
    ) -> tuple[Tensor, None]:  # fmt: skip
        """query, key, value: [B, N, dim] or [N, dim]; key and value default to query.

        Returns (out, None), out like query; the attention weights are never formed.
        """
        if need_weights:
            raise ValueError("GraphMaskedAttention: the weights are never formed, need_weights must be False")
        key = query if key is None else key
        value = key if value is None else value
        biases = (None, None, None) if self.in_proj_bias is None else self.in_proj_bias.chunk(3)
        packed = query.dim() == 2
        projected = (
            nn.functional.linear(x, weight, bias).unflatten(-1, (self.heads, -1))
            for x, weight, bias in zip((query, key, value), self.in_proj_weight.chunk(3), biases)
        )
        q, k, v = (x if packed else x.transpose(1, 2) for x in projected)
        out = attention(
            q, k, v, self.mask if mask is None else mask, kind=self.kind, feature_map=self.feature_map,
            engine=self.engine, epsilon=self.epsilon, num_features=self.num_features, feature_seed=self.feature_seed,
        )  # fmt: skip
        return self.out_proj((out if packed else out.transpose(1, 2)).flatten(-2)), None

    def extra_repr(self) -> str:
        return f"dim={self.dim}, heads={self.heads}, kind={self.kind}"


class TransformerBlock(nn.Module):
    """x + attention(norm(x)), then x + mlp(norm(x)); x: [B, N, dim] or [N, dim].

    Args:
        dim, heads, mask: of the attention.
        mlp_ratio: hidden channels of the MLP over dim.
        dropout: after the attention and inside and after the MLP.
        options: of the attention: kind, feature_map, engine, epsilon, num_features, feature_seed.
    """

    def __init__(
        self, dim: int, heads: int, mask: Mask | None = None, *, mlp_ratio: float = 4.0, dropout: float = 0.0,
        **options: Any,
    ) -> None:  # fmt: skip
        super().__init__()
        hidden = round(dim * mlp_ratio)
        self.norm1 = nn.LayerNorm(dim)
        self.attention = GraphMaskedAttention(dim, heads, mask, **options)
        self.dropout = nn.Dropout(dropout)
        self.norm2 = nn.LayerNorm(dim)
        inner = (nn.Linear(dim, hidden), nn.GELU(), nn.Dropout(dropout))
        self.mlp = nn.Sequential(*inner, nn.Linear(hidden, dim), nn.Dropout(dropout))

    def forward(self, x: Tensor, mask: Mask | None = None) -> Tensor:
        out, _ = self.attention(self.norm1(x), mask=mask)
        x = x + self.dropout(out)
        return x + self.mlp(self.norm2(x))
