"""What every mask is: an operator that multiplies columns, and what it may know about itself."""

from __future__ import annotations

import itertools
import warnings

import torch
from torch import Tensor, nn

from topomask._ops import Pattern, ops


class ExactBuffers(nn.Module):
    """A module whose numbers that belong to a graph (weights, loads, noise) keep their precision.

    module.to(bfloat16) or module.double() is meant for parameters; these buffers follow to another device only.
    """

    def _apply(self, fn, recurse=True):  # type: ignore[no-untyped-def]
        exact = {name: b for name, b in self._buffers.items() if b is not None and b.is_floating_point()}
        super()._apply(fn, recurse)
        for name, buffer in exact.items():
            moved = self._buffers[name]
            assert moved is not None
            self._buffers[name] = buffer.to(moved.device)
        return self


class Mask(ExactBuffers):
    """A mask M, [heads, N, N], known by its products; it may know more about itself.

    To make a mask of your own, derive from this, set `num_nodes` and `heads` (1: the same for every head),
    implement `multiply`, and override what it knows: `entries`, `factors` or `dense`.
    """

    num_nodes: int
    heads: int

    def __init__(self, num_nodes: int, heads: int = 1) -> None:
        super().__init__()
        if heads < 1:
            raise ValueError(f"{type(self).__name__}: heads must be at least 1, got {heads}")
        self.num_nodes = num_nodes
        self.heads = heads

    @property
    def device(self) -> torch.device | None:
        """Where the mask computes; None where it has no tensors and follows what it is given."""
        for tensor in itertools.chain(self.parameters(), self.buffers()):
            return tensor.device
        return None

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        """M x, or M^T x. x: [H, N, C] with H = heads, or anything where heads is 1; float32 or float64."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """M x."""
        return self.multiply(x)

    def entries(self) -> list[tuple[Pattern, Tensor]] | None:
        """The nonzeros: one (pattern, values [1 or heads, nnz]), or one a head; None where M is not sparse."""
        return None

    def num_entries(self) -> int:
        """Nonzeros over all patterns, -1 where M is not sparse."""
        return -1

    def entries_per_head(self) -> bool:
        """Whether each head has a pattern of its own."""
        return False

    def factors(self) -> tuple[Tensor, Tensor] | None:
        """left and right, [1 or heads, N, R], with M = left right^T; None where there are none."""
        return None

    def rank(self) -> int:
        """R of the factors, 0 where there are none."""
        return 0

    def sparse_factors(self) -> list[tuple[tuple[Pattern, Tensor], tuple[Pattern, Tensor]]] | None:
        """left and right with M = left right^T, each a pattern and its values [1 or heads, nnz]: one pair, or one a
        head; None where there are none."""
        return None

    def cost(self) -> tuple[float, float]:
        """Multiply-adds, and bytes moved in float32, to multiply one column; the planner's guess for `feature`."""
        return float(self.num_nodes) ** 2, 4 * float(self.num_nodes) ** 2

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """M as [heads, N, N], differentiable; for small graphs."""
        n = self.num_nodes
        entries = self.entries()
        if entries is not None:
            parts = [ops.write_out(values.to(dtype), pattern) for pattern, values in entries]
            return parts[0] if len(parts) == 1 else torch.cat(parts)
        factors = self.factors()
        if factors is not None:
            return factors[0].to(dtype) @ factors[1].to(dtype).transpose(-2, -1)
        return self.multiply(torch.eye(n, dtype=dtype, device=self.device).expand(self.heads, n, n))

    def extra_repr(self) -> str:
        return f"nodes={self.num_nodes}, heads={self.heads}"

    def __repr__(self) -> str:
        # What it is made of is for the library alone; masks inside masks are worth showing.
        parts = [f"  ({name}): {child!r}".replace("\n", "\n  ") for name, child in self._masks()]
        inside = "\n" + "\n".join(parts) + "\n" if parts else ""
        return f"{type(self).__name__}({self.extra_repr()}{inside})"

    def _masks(self) -> list[tuple[str, Mask]]:
        return [
            (name.removeprefix("masks."), module)
            for name, module in self.named_modules()
            if isinstance(module, Mask) and module is not self and name.removeprefix("masks.").count(".") == 0
        ]

    def _check_columns(self, x: Tensor) -> None:
        if x.dim() != 3 or x.shape[1] != self.num_nodes or self.heads not in (1, x.shape[0]):
            heads = "H" if self.heads == 1 else str(self.heads)
            raise ValueError(
                f"{type(self).__name__}: x must be [heads, nodes, columns] = [{heads}, {self.num_nodes}, C], "
                f"got {list(x.shape)}"
            )


def csr_tensor(row_ptr: Tensor, col: Tensor, values: Tensor, columns: int | None = None) -> Tensor:
    """A sparse CSR tensor, square unless `columns` says otherwise."""
    n = row_ptr.shape[0] - 1
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        return torch.sparse_csr_tensor(
            row_ptr, col.long(), values, (n, n if columns is None else columns), check_invariants=False
        )


class PatternBuffers(ExactBuffers):
    """A pattern as buffers that follow the module but stay out of its state dict: the graph makes them again."""

    _names = ("row_ptr", "col", "transposed_ptr", "transposed_row", "transposed_entry")

    def __init__(self, pattern: Pattern) -> None:
        super().__init__()
        for name, tensor in zip(self._names, pattern):
            self.register_buffer(name, tensor, persistent=False)

    def pattern(self) -> Pattern:
        return [getattr(self, name) for name in self._names]

    @property
    def nnz(self) -> int:
        return self.get_buffer("col").shape[0]
