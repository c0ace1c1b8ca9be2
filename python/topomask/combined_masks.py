"""Masks made of masks. Each keeps what its parts know: entries if all parts have entries, and so on."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from topomask._ops import Pattern, make_pattern, ops
from topomask.mask import Mask, PatternBuffers

Entries = list[tuple[Pattern, Tensor]]


class _MergedEntries(nn.Module):
    """The union of patterns that stand along the diagonal of a larger one; made once, filled with values often."""

    def __init__(self, num_nodes: int, parts: Sequence[Entries], offsets: Sequence[int]) -> None:
        super().__init__()
        self.unions = nn.ModuleList()
        for index in range(max(len(entries) for entries in parts)):
            patterns = [_nth(entries, index)[0] for entries in parts]
            row_ptr, col, slot = ops.merge_patterns(
                [p[0].cpu() for p in patterns], [p[1].cpu() for p in patterns], list(offsets), num_nodes
            )
            union = PatternBuffers(make_pattern(row_ptr, col))
            union.register_buffer("slot", slot, persistent=False)
            self.unions.append(union.to(patterns[0][0].device))

    @property
    def nnz(self) -> int:
        return sum(union.get_buffer("col").shape[0] for union in self.unions)

    def merge(self, parts: Sequence[Entries]) -> Entries:
        """The values of the parts, added up where entries coincide."""
        values = [v for entries in parts for _, v in entries]
        dtype = torch.float64 if any(v.dtype == torch.float64 for v in values) else torch.float32
        shared = len(self.unions) == 1
        heads = max(v.shape[0] for v in values) if shared else 1
        result = []
        for index, union in enumerate(self.unions):
            assert isinstance(union, PatternBuffers)
            rows = []
            for entries in parts:
                own = _nth(entries, index)[1].to(dtype)
                if not shared and len(entries) == 1 and own.shape[0] > 1:
                    own = own[index : index + 1]
                rows.append(own.expand(heads, -1))
            together = torch.cat(rows, 1)
            merged = together.new_zeros(heads, union.nnz).index_add(1, union.get_buffer("slot"), together)
            result.append((union.pattern(), merged))
        return result


def _nth(entries: Entries, index: int) -> tuple[Pattern, Tensor]:
    return entries[0 if len(entries) == 1 else index]


def _entries_of(masks: Sequence[Mask]) -> list[Entries] | None:
    """What every mask has; None where one is not sparse."""
    found = []
    for mask in masks:
        entries = mask.entries() if mask.num_entries() >= 0 else None
        if entries is None:
            return None
        found.append(entries)
    return found


def _common_heads(owner: str, masks: Sequence[Mask]) -> int:
    if not masks:
        raise ValueError(f"{owner}: masks must hold at least one mask, got none")
    heads = max(mask.heads for mask in masks)
    for mask in masks:
        if mask.heads not in (1, heads):
            raise ValueError(
                f"{owner}: masks must have 1 head or {heads} heads, but {type(mask).__name__} has {mask.heads}"
            )
    return heads


class _CombinedMask(Mask):
    """What sums and block diagonals share."""

    def __init__(self, masks: Sequence[Mask], num_nodes: int, offsets: Sequence[int]) -> None:
        super().__init__(num_nodes, _common_heads(type(self).__name__, masks))
        self.masks = nn.ModuleList(masks)
        with torch.no_grad():
            parts = _entries_of(masks)
        self.merged = None if parts is None else _MergedEntries(num_nodes, parts, offsets)

    def _parts(self) -> list[Mask]:
        return [mask for mask in self.masks if isinstance(mask, Mask)]

    def entries(self) -> Entries | None:
        if self.merged is None:
            return None
        parts = _entries_of(self._parts())
        assert parts is not None
        return self.merged.merge(parts)

    def num_entries(self) -> int:
        return -1 if self.merged is None else self.merged.nnz

    def entries_per_head(self) -> bool:
        return any(mask.entries_per_head() for mask in self._parts())

    def cost(self) -> tuple[float, float]:
        costs = [mask.cost() for mask in self._parts()]
        return sum(c[0] for c in costs), sum(c[1] for c in costs)


class SumMask(_CombinedMask):
    """The sum of masks on the same nodes; those with one head serve every head."""

    def __init__(self, *masks: Mask) -> None:
        for mask in masks:
            if mask.num_nodes != masks[0].num_nodes:
                raise ValueError(
                    f"SumMask: masks must have {masks[0].num_nodes} nodes as the first, but {type(mask).__name__} "
                    f"has {mask.num_nodes}"
                )
        super().__init__(masks, masks[0].num_nodes if masks else 0, [0] * len(masks))

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        first, *others = self._parts()
        return sum((mask.multiply(x, transposed) for mask in others), first.multiply(x, transposed))

    def factors(self) -> tuple[Tensor, Tensor] | None:
        if self.rank() == 0:
            return None
        found = [mask.factors() for mask in self._parts()]
        sides = ([f[side].expand(self.heads, -1, -1) for f in found if f is not None] for side in (0, 1))
        left, right = (torch.cat(side, -1) for side in sides)
        return left, right

    def rank(self) -> int:
        ranks = [mask.rank() for mask in self._parts()]
        return sum(ranks) if min(ranks) > 0 else 0

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        first, *others = self._parts()
        total = sum((mask.dense(dtype) for mask in others), first.dense(dtype))
        return total.expand(self.heads, -1, -1)


class BlockDiagonalMask(_CombinedMask):
    """A batch of graphs: the masks stand one after the other on the diagonal. `ptr` says where each begins."""

    def __init__(self, *masks: Mask) -> None:
        ptr = [0]
        for mask in masks:
            ptr.append(ptr[-1] + mask.num_nodes)
        super().__init__(masks, ptr[-1], ptr[:-1])
        self.ptr = tuple(ptr)

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        blocks = zip(self._parts(), x.split([mask.num_nodes for mask in self._parts()], 1))
        return torch.cat([mask.multiply(block, transposed) for mask, block in blocks], 1)

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        bands = []
        for mask, begin, end in zip(self._parts(), self.ptr, self.ptr[1:]):
            block = mask.dense(dtype).expand(self.heads, -1, -1)
            bands.append(nn.functional.pad(block, (begin, self.num_nodes - end)))
        return torch.cat(bands, 1)


class ScaledMask(Mask):
    """diag(row_scale) M diag(column_scale), both parameters [heads or 1, N]; None stands for ones."""

    def __init__(
        self,
        mask: Mask,
        row_scale: Tensor | None = None,
        column_scale: Tensor | None = None,
        *,
        learnable: bool = True,
    ) -> None:
        scales = {"row_scale": row_scale, "column_scale": column_scale}
        heads = mask.heads
        for name, scale in scales.items():
            if scale is None:
                continue
            if scale.dim() not in (1, 2) or scale.shape[-1] != mask.num_nodes:
                raise ValueError(
                    f"ScaledMask: {name} must be [{mask.num_nodes}] or [heads, {mask.num_nodes}], "
                    f"got {list(scale.shape)}"
                )
            own = 1 if scale.dim() == 1 else scale.shape[0]
            if own != 1 and heads not in (1, own):
                raise ValueError(f"ScaledMask: {name} has {own} heads, the rest has {heads}")
            heads = max(heads, own)
        super().__init__(mask.num_nodes, heads)
        self.mask = mask
        for name, scale in scales.items():
            kept = None
            if scale is not None:
                kept = nn.Parameter(scale.detach().clone().reshape(-1, mask.num_nodes), requires_grad=learnable)
            self.register_parameter(name, kept)

    def _scale(self, rows: bool, dtype: torch.dtype) -> Tensor | None:
        scale = self._parameters["row_scale" if rows else "column_scale"]
        return None if scale is None else scale.to(dtype)

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        before, after = self._scale(transposed, x.dtype), self._scale(not transposed, x.dtype)
        if before is not None:
            x = x * before.unsqueeze(-1)
        x = self.mask.multiply(x, transposed)
        return x if after is None else x * after.unsqueeze(-1)

    def entries(self) -> Entries | None:
        entries = self.mask.entries()
        if entries is None:
            return None
        result = []
        for index, (pattern, values) in enumerate(entries):
            nodes = torch.arange(self.num_nodes, device=values.device)
            of_rows = torch.repeat_interleave(nodes, pattern[0].diff(), output_size=pattern[1].shape[0])
            for rows, node in ((True, of_rows), (False, pattern[1])):
                scale = self._scale(rows, values.dtype)
                if scale is not None:
                    own = scale if len(entries) == 1 or scale.shape[0] == 1 else scale[index : index + 1]
                    values = values * own.index_select(1, node)
            result.append((pattern, values))
        return result

    def num_entries(self) -> int:
        return self.mask.num_entries()

    def entries_per_head(self) -> bool:
        return self.mask.entries_per_head()

    def factors(self) -> tuple[Tensor, Tensor] | None:
        factors = self.mask.factors()
        if factors is None:
            return None
        scales = (self._scale(rows, factors[0].dtype) for rows in (True, False))
        left, right = (f if s is None else f * s.unsqueeze(-1) for f, s in zip(factors, scales))
        return left, right

    def rank(self) -> int:
        return self.mask.rank()

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        matrix = self.mask.dense(dtype)
        rows, columns = self._scale(True, dtype), self._scale(False, dtype)
        matrix = matrix if rows is None else matrix * rows.unsqueeze(-1)
        matrix = matrix if columns is None else matrix * columns.unsqueeze(-2)
        return matrix.expand(self.heads, -1, -1)

    def cost(self) -> tuple[float, float]:
        work, moved = self.mask.cost()
        return work + 2 * self.num_nodes, moved + 16 * self.num_nodes


class AbsoluteMask(Mask):
    """|M|, entry by entry: keeps normalisers positive while learned parameters change sign.

    Its derivative is the sign of an entry, and 0 where the entry is 0. The magnitude of a product is no product, so the
    factors of M are lost: it is worked with by its entries or, for small graphs, written out.
    """

    def __init__(self, mask: Mask) -> None:
        super().__init__(mask.num_nodes, mask.heads)
        self.mask = mask

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        entries = self.entries()
        if entries is None:
            matrix = self.dense(x.dtype)
            return (matrix.transpose(-2, -1) if transposed else matrix) @ x
        parts = [x] if len(entries) == 1 else x.split(1)
        return torch.cat([
            ops.sparse_matmul(values.to(x.dtype), part, pattern, transposed)
            for (pattern, values), part in zip(entries, parts)
        ])  # fmt: skip

    def entries(self) -> Entries | None:
        entries = self.mask.entries()
        return None if entries is None else [(pattern, values.abs()) for pattern, values in entries]

    def num_entries(self) -> int:
        return self.mask.num_entries()

    def entries_per_head(self) -> bool:
        return self.mask.entries_per_head()

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        return self.mask.dense(dtype).abs()

    def cost(self) -> tuple[float, float]:
        entries = float(self.num_nodes) ** 2
        if self.num_entries() >= 0:
            entries = self.num_entries() // (self.heads if self.entries_per_head() else 1)
        return entries, 12 * entries


class GlobalTokensMask(Mask):
    """Tokens in front of the nodes (CLS) that see and are seen by all: [[1, 1], [1, M]]."""

    def __init__(self, mask: Mask, tokens: int = 1) -> None:
        if tokens < 1:
            raise ValueError(f"GlobalTokensMask: tokens must be at least 1, got {tokens}")
        super().__init__(mask.num_nodes + tokens, mask.heads)
        self.mask, self.tokens = mask, tokens
        with torch.no_grad():
            inner = _entries_of([mask])
        self.global_rows = self.merged = None
        if inner is not None:
            pattern, _ = inner[0][0]
            self.global_rows = PatternBuffers(self._global_pattern()).to(pattern[0].device)
            self.merged = _MergedEntries(self.num_nodes, self._with_tokens(inner[0]), [0, tokens])

    def _global_pattern(self) -> Pattern:
        """Full rows of the tokens, and their columns in the rows of all others."""
        tokens, n, others = self.tokens, self.num_nodes, self.mask.num_nodes
        row_ptr = torch.cat([torch.arange(tokens) * n, torch.arange(others + 1) * tokens + tokens * n])
        columns = torch.cat([torch.arange(n).repeat(tokens), torch.arange(tokens).repeat(others)])
        return make_pattern(row_ptr, columns.int())

    def _with_tokens(self, inner: Entries) -> list[Entries]:
        assert self.global_rows is not None
        ones = inner[0][1].new_ones(1, self.global_rows.nnz)
        return [[(self.global_rows.pattern(), ones)], inner]

    def entries(self) -> Entries | None:
        inner = self.mask.entries()
        if inner is None or self.merged is None:
            return None
        return self.merged.merge(self._with_tokens(inner))

    def num_entries(self) -> int:
        return -1 if self.merged is None else self.merged.nnz

    def entries_per_head(self) -> bool:
        return self.mask.entries_per_head()

    def factors(self) -> tuple[Tensor, Tensor] | None:
        """[[1, 1], [1, L R^T]] = g 1^T + n g^T + [0; L] [0; R]^T, where g marks the tokens and n the nodes."""
        factors = self.mask.factors()
        if factors is None:
            return None

        def extended(factor: Tensor, is_left: bool) -> Tensor:
            padded = nn.functional.pad(factor, (0, 0, self.tokens, 0))
            tokens = factor.new_zeros(factor.shape[0], self.num_nodes, 1)
            tokens[:, : self.tokens] = 1
            ones = torch.ones_like(tokens)
            return torch.cat([tokens, ones - tokens, padded] if is_left else [ones, tokens, padded], -1)

        return extended(factors[0], True), extended(factors[1], False)

    def rank(self) -> int:
        inner = self.mask.rank()
        return inner + 2 if inner > 0 else 0

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        tokens, nodes = x[:, : self.tokens], x[:, self.tokens :]
        below = self.mask.multiply(nodes, transposed) + tokens.sum(1, keepdim=True)
        above = x.sum(1, keepdim=True).expand(-1, self.tokens, -1)
        return torch.cat([above, below], 1)

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        return nn.functional.pad(self.mask.dense(dtype), (self.tokens, 0, self.tokens, 0), value=1.0)

    def cost(self) -> tuple[float, float]:
        work, moved = self.mask.cost()
        return work + 2 * self.num_nodes, moved + 12 * self.num_nodes

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, tokens={self.tokens}"
