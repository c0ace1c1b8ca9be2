"""What every mask is: an operator that multiplies columns, and what it may know about itself."""

from __future__ import annotations

import itertools
import json
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from topomask._ops import ops

if TYPE_CHECKING:
    from topomask.graph import Graph

Pattern = list[Tensor]
"""row_ptr [N+1] int64 and col [nnz] int32, ascending within a row."""
Entries = list[tuple[Pattern, Tensor]]
Expression = tuple[str, list[Tensor], list[Tensor]]
"""How the library knows a mask: a recipe, the constants of its graph, its parameters."""


class ExactBuffers(nn.Module):
    """A module whose numbers that belong to a graph keep their precision.

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

    def entries(self) -> Entries | None:
        """The nonzeros: one (pattern, values [1 or heads, nnz]), or one per head; None where M is not sparse."""
        return None

    def factors(self) -> tuple[Tensor, Tensor] | None:
        """left and right, [1 or heads, N, R], with M = left right^T; None where there are none."""
        return None

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """M as [heads, N, N], differentiable; for small graphs."""
        expression = self._tensors()
        if expression is not None:
            return ops.mask_view(*expression, "dense", dtype)
        n = self.num_nodes
        return self.multiply(torch.eye(n, dtype=dtype, device=self.device).expand(self.heads, n, n))

    def _tensors(self) -> Expression | None:
        """A mask of one's own by its entries or factors; None where it can only multiply."""
        entries = self.entries()
        if entries is not None:
            parts = [ops.make_tensor_mask("sparse", pattern[:2], [values]) for pattern, values in entries]
            if len(parts) > 1:
                raise ValueError(f"{type(self).__name__}: entries of your own must share one pattern")
            return *parts[0], [entries[0][1]]
        factors = self.factors()
        if factors is None:
            return None
        return *ops.make_tensor_mask("low-rank", [], list(factors)), list(factors)

    def _expression(self) -> Expression | None:
        """None where the library can only ask for products."""
        return self._tensors()

    def _written_out(self) -> Expression:
        """As a part of another mask: where there is nothing better, by the matrix."""
        expression = self._expression()
        if expression is not None:
            return expression
        matrix = self.dense()
        return *ops.make_tensor_mask("dense", [], [matrix]), [matrix]

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


class LibraryMask(Mask):
    """A mask that the library knows: a recipe, constants as buffers, and parameters by their names."""

    _recipe: str
    _names: tuple[str, ...] = ()

    def _adopt(self, expression: Expression) -> None:
        """Takes over what an operator made; parameters that are there already stay."""
        self._recipe, constants, parameters = expression
        self.num_nodes, self.heads = ops.mask_profile(self._recipe)[:2]
        for index, constant in enumerate(constants):
            self.register_buffer(f"_constant{index}", constant, persistent=False)
        for name, parameter in zip(self._names, parameters, strict=True):
            if name not in self._parameters:
                self.register_parameter(name, nn.Parameter(parameter))
        # What the library made for the constants goes with them.
        weakref.finalize(self, ops.forget_masks)

    def _expression(self) -> Expression:
        constants = [tensor for tensor in self._buffers.values() if tensor is not None]
        return self._recipe, constants, [getattr(self, name) for name in self._names]

    def _tensors(self) -> Expression | None:
        return self._expression()

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        return ops.mask_multiply(*self._expression(), x, transposed)

    def entries(self) -> Entries | None:
        if self.num_entries() < 0:
            return None
        expression = self._expression()
        dtype = torch.float64 if any(p.dtype == torch.float64 for p in expression[2]) else torch.float32
        tensors = ops.mask_pattern(*expression)
        patterns = [tensors[i : i + 2] for i in range(0, len(tensors), 2)]
        flat = ops.mask_view(*expression, "values", dtype)
        if len(patterns) == 1:
            return [(patterns[0], flat.view(-1, patterns[0][1].shape[0]))]
        values = flat.split([pattern[1].shape[0] for pattern in patterns])
        return [(pattern, own.unsqueeze(0)) for pattern, own in zip(patterns, values, strict=True)]

    def factors(self) -> tuple[Tensor, Tensor] | None:
        if self.rank() == 0:
            return None
        left, right = ops.mask_view(*self._expression(), "factors", torch.float32)
        return left, right

    def num_entries(self) -> int:
        """Nonzeros over all patterns, counted or estimated; -1 where M is not sparse."""
        return int(ops.mask_profile(self._expression()[0])[2])

    def rank(self) -> int:
        """R of the factors, 0 where there are none."""
        return int(ops.mask_profile(self._expression()[0])[5])

    def __getstate__(self) -> dict[str, Any]:
        return dict(self.__dict__)


class CatalogueMask(LibraryMask):
    """A mask that the library makes by its name. Settings that are None are the library's defaults."""

    def __init__(
        self,
        name: str,
        graph: Graph | None = None,
        *,
        num_nodes: int = 0,
        heads: int = 1,
        settings: Mapping[str, Any] | None = None,
        given: Mapping[str, Any] | None = None,
        dtype: torch.dtype = torch.float32,
        parameters: Sequence[str] = (),
    ) -> None:
        super().__init__(num_nodes if graph is None else graph.num_nodes)
        self._names = tuple(parameters)
        self._name, self._heads, self._dtype = name, heads, dtype
        self._settings = {key: as_text(value) for key, value in (settings or {}).items() if value is not None}
        self._make(graph, {key: as_tensor(value, dtype) for key, value in (given or {}).items() if value is not None})

    def _make(self, graph: Graph | None, given: Mapping[str, Tensor]) -> None:
        tensors = [] if graph is None else [graph.row_ptr, graph.col, graph.weight]
        if graph is not None and graph.ptr is not None:
            tensors.append(graph.ptr)
        self._adopt(
            ops.make_mask(
                self._name, tensors, graph is not None and graph.directed,
                -1 if graph is None else graph.out_degree, self.num_nodes, self._heads,
                json.dumps(self._settings), list(given), list(given.values()), self._dtype,
                torch.device("cpu") if graph is None else graph.device,
            )
        )  # fmt: skip

    def extra_repr(self) -> str:
        own = "".join(f", {key}={value}" for key, value in self._settings.items())
        return super().extra_repr() + own


class CombinedMask(LibraryMask):
    """A mask of masks. It follows its parts: their parameters, and fresh walks too."""

    def __init__(self, name: str, masks: Sequence[Mask], numbers: Sequence[int] = ()) -> None:
        for mask in masks:
            if not isinstance(mask, Mask):
                raise TypeError(f"{type(self).__name__}: expected masks, got {type(mask).__name__}")
        if not masks:
            raise ValueError(f"{type(self).__name__}: masks must hold at least one mask, got none")
        super().__init__(masks[0].num_nodes)
        self._name, self._numbers = name, list(numbers)
        self._combined: tuple[tuple[str, ...], str] | None = None

    def _parts(self) -> list[Mask]:
        return [module for module in (*self.children(), *getattr(self, "masks", ())) if isinstance(module, Mask)]

    def _own_parameters(self) -> list[Tensor]:
        return []

    def _expression(self) -> Expression:
        expressions = [mask._written_out() for mask in self._parts()]
        constants = [tensor for _, own, _ in expressions for tensor in own]
        parameters = [tensor for *_, own in expressions for tensor in own] + self._own_parameters()
        recipes = tuple(recipe for recipe, *_ in expressions)
        if self._combined is None or self._combined[0] != recipes:
            made = ops.combine_masks(self._name, list(recipes), self._numbers, constants, parameters)
            self._combined = recipes, made
            self.num_nodes, self.heads = ops.mask_profile(made)[:2]
        return self._combined[1], constants, parameters


def as_text(value: Any) -> str:
    """A setting as the library reads it."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return value
    if isinstance(value, (int, float)):
        return repr(value)
    return ",".join(repr(float(number)) for number in value)


def as_tensor(value: Any, dtype: torch.dtype) -> Tensor:
    tensor = torch.as_tensor(value).detach()
    return tensor.clone() if tensor.is_floating_point() else tensor.to(dtype)


def csr_tensor(row_ptr: Tensor, col: Tensor, values: Tensor, columns: int | None = None) -> Tensor:
    """A sparse CSR tensor, square unless `columns` says otherwise."""
    n = row_ptr.shape[0] - 1
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="Sparse (CSR tensor support|invariant checks)")
        return torch.sparse_csr_tensor(
            row_ptr, col.long(), values, (n, n if columns is None else columns), check_invariants=False
        )
