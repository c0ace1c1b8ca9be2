"""The base of all masks: an operator that multiplies columns and may know more about itself."""

import inspect
import itertools
import json
import warnings
import weakref
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from topomask._catalogue import arguments_of, as_text, bound, catalogue, docstring_of, signature_of
from topomask._ops import ops
from topomask.graph import Graph, as_graph

Pattern = list[Tensor]
"""row_ptr [N+1] int64 and col [nnz] int32, ascending within a row."""
Entries = list[tuple[Pattern, Tensor]]
Expression = tuple[str, list[Tensor], list[Tensor]]
"""A mask as the library knows it: a recipe, the constants of its graph, its parameters."""


class Mask(nn.Module):
    """A mask M, [heads, N, N], known by its products; it may know more about itself.

    To make a mask of your own, derive from this, set `num_nodes` and `heads` (1: the same for every head),
    implement `multiply`, and override what it knows: `entries`, `factors` or `dense`.
    """

    def __init__(self, num_nodes: int, heads: int = 1) -> None:
        super().__init__()
        if heads < 1:
            raise ValueError(f"{type(self).__name__}: heads must be at least 1, got {heads}")
        self.num_nodes, self.heads = num_nodes, heads

    @property
    def device(self) -> torch.device | None:
        """Device of the mask; None if it has no tensors and follows its input."""
        tensor = next(itertools.chain(self.parameters(), self.buffers()), None)
        return None if tensor is None else tensor.device

    def _apply(self, fn, recurse=True):  # type: ignore[no-untyped-def]
        # to(bfloat16) or double() is meant for parameters; what belongs to the graph keeps its precision.
        exact = {name: b for name, b in self._buffers.items() if b is not None and b.is_floating_point()}
        super()._apply(fn, recurse)
        for name, buffer in exact.items():
            self._buffers[name] = buffer.to(self.get_buffer(name).device)
        return self

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        """M x, or M^T x. x: [H, N, C] with H = heads, or any H if heads is 1; float32 or float64."""
        raise NotImplementedError

    def forward(self, x: Tensor) -> Tensor:
        """M x."""
        return self.multiply(x)

    def entries(self) -> Entries | None:
        """The nonzeros: one (pattern, values [1 or heads, nnz]), or one per head; None if M is not sparse."""
        return None

    def factors(self) -> tuple[Tensor, Tensor] | None:
        """left and right, [1 or heads, N, R], with M = left right^T; None where there are none."""
        return None

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """M as [heads, N, N], differentiable; for small graphs."""
        if (expression := self._expression()) is not None:
            return ops.mask_view(*expression, "dense", dtype)
        n = self.num_nodes
        return self.multiply(torch.eye(n, dtype=dtype, device=self.device).expand(self.heads, n, n))

    def _expression(self) -> Expression | None:
        """For the library, by entries or factors; None if only products are available."""
        if (entries := self.entries()) is not None:
            if len(entries) > 1:
                raise ValueError(f"{type(self).__name__}: entries of your own must share one pattern")
            ((pattern, values),) = entries
            return *ops.make_tensor_mask("sparse", pattern[:2], [values]), [values]
        if (factors := self.factors()) is not None:
            return *ops.make_tensor_mask("low-rank", [], list(factors)), list(factors)
        return None

    def _written_out(self) -> Expression:
        """As a part of another mask; by the matrix if there is nothing better."""
        if (expression := self._expression()) is not None:
            return expression
        matrix = self.dense()
        return *ops.make_tensor_mask("dense", [], [matrix]), [matrix]

    def extra_repr(self) -> str:
        return f"nodes={self.num_nodes}, heads={self.heads}"

    def __repr__(self) -> str:
        # Masks inside masks are worth showing, the list that holds them is not.
        parts = self._modules.get("masks", self).named_children()  # type: ignore[union-attr]
        lines = [f"  ({key}): {own!r}".replace("\n", "\n  ") for key, own in parts if isinstance(own, Mask)]
        inside = "\n" + "\n".join(lines) + "\n" if lines else ""
        return f"{type(self).__name__}({self.extra_repr()}{inside})"


class LibraryMask(Mask):
    """A mask that the library knows: a recipe, constants as buffers, and parameters by their names."""

    _recipe: str
    _names: tuple[str, ...] = ()

    def _adopt(self, expression: Expression) -> None:
        """Takes over what an operator made; existing parameters stay."""
        if "_recipe" not in self.__dict__:
            weakref.finalize(self, ops.forget_masks)  # what the library made for the constants goes with them
        self._recipe, constants, parameters = expression
        self.num_nodes, self.heads = ops.mask_profile(self._recipe)[:2]
        for index, constant in enumerate(constants):
            self.register_buffer(f"_constant{index}", constant, persistent=False)
        for name, parameter in zip(self._names, parameters, strict=True):
            if name not in self._parameters:
                self.register_parameter(name, nn.Parameter(parameter))

    def _adopt_tensors(self, name: str, constants: list[Tensor], learnable: bool, *tensors: Tensor) -> None:
        """As a mask whose parameters are the tensors themselves."""
        own = [tensor.detach().clone() for tensor in tensors]
        self._adopt((*ops.make_tensor_mask(name, constants, own), own))
        self.requires_grad_(learnable)

    def _expression(self) -> Expression:
        constants = [tensor for tensor in self._buffers.values() if tensor is not None]
        return self._recipe, constants, [getattr(self, name) for name in self._names]

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
        sizes = [pattern[1].shape[0] for pattern in patterns]
        values = flat.split(sizes) if len(sizes) > 1 else [flat]
        rows = [own.view(len(own) // size if size else 1, size) for own, size in zip(values, sizes)]
        return list(zip(patterns, rows, strict=True))

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


class CatalogueMask(LibraryMask):
    """A mask that the library makes by its name.

    A class has its name there, and says which of its arguments may go without their names. Settings,
    defaults, descriptions and parameters are those of the catalogue.
    """

    _info: dict[str, Any]
    _arguments: dict[str, dict[str, Any]]
    _signature: inspect.Signature
    __signature__: inspect.Signature | None  # what help() shows
    _as_graph = staticmethod(as_graph)

    def __init_subclass__(cls, positional: str = "") -> None:
        super().__init_subclass__()
        if not positional:  # derived from a mask of the catalogue
            cls.__signature__ = None if "__init__" in vars(cls) else cls._signature
            return
        cls._info = next(info for info in catalogue() if info["python_name"] == cls.__name__)
        cls._names = tuple(parameter["name"] for parameter in cls._info["parameters"])
        cls._arguments = arguments_of(cls._info, positional.split())
        cls._signature = cls.__signature__ = signature_of(cls._arguments, positional.split())
        cls.__doc__ = docstring_of(cls._info, cls._arguments, cls.__doc__)

    def __init__(self, *values: Any, **named: Any) -> None:
        given = bound(type(self).__name__, self._signature, values, named)
        graph = self._as_graph(given.pop("graph")) if "graph" in given else None
        super().__init__(given.pop("num_nodes", 0) if graph is None else graph.num_nodes)
        self._heads, self._dtype = given.pop("heads", 1), given.pop("dtype", torch.float32)
        settings: dict[str, str] = {}
        start: dict[str, Tensor] = {}
        for name, value in given.items():
            is_tensor = "start" in self._arguments[name]
            if is_tensor or (name == "init" and isinstance(value, Tensor)):
                tensor = torch.as_tensor(value).detach().clone()
                start[name] = tensor if is_tensor and tensor.is_floating_point() else tensor.to(self._dtype)
            else:
                settings[name] = as_text(value)
        if graph is not None:
            mask = (self._info["name"], graph.rows, graph.directed, self._heads)
            if advice := ops.mask_advice(*mask, json.dumps(settings)):
                warnings.warn(advice, stacklevel=3)
        self._make(graph, start, settings)

    def _make(self, graph: Graph | None, start: Mapping[str, Tensor], settings: dict[str, str]) -> None:
        """start: parameters whose initial values differ from the catalogue's. Where it fails, the mask stays as
        it was."""
        rows: list[Tensor] = [] if graph is None else [x for x in (*graph.rows, graph.ptr) if x is not None]
        kind = (False, -1) if graph is None else (graph.directed, graph.out_degree)
        made = ops.make_mask(
            self._info["name"], rows, *kind, self.num_nodes if graph is None else graph.num_nodes, self._heads,
            json.dumps(settings), list(start), list(start.values()), self._dtype,
            torch.device("cpu") if graph is None else graph.device,
        )  # fmt: skip
        self._settings, self._kind = settings, kind
        self._buffers.clear()
        self._adopt(made)

    def _load_from_state_dict(self, state_dict, prefix, *rest):  # type: ignore[no-untyped-def]
        for parameter in self._info["parameters"]:
            name, former = prefix + parameter["name"], prefix + parameter["former_name"]
            if former in state_dict and name not in state_dict:
                state_dict[name] = state_dict.pop(former)
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def extra_repr(self) -> str:
        return super().extra_repr() + "".join(f", {key}={value}" for key, value in self._settings.items())


class CombinedMask(LibraryMask):
    """A mask of masks. It follows its parts: their parameters, and fresh walks too."""

    mask: Mask
    masks: nn.ModuleList

    def __init__(
        self, name: str, of: Mask | tuple[Mask, ...], numbers: Sequence[int] = (), **own: Tensor | None
    ) -> None:
        """numbers: what the recipe says besides its parts. own: parameters, None where there is none."""
        super().__init__(0)
        for part in of if isinstance(of, tuple) else (of,):
            if not isinstance(part, Mask):
                raise TypeError(f"{type(self).__name__}: expected masks, got {type(part).__name__}")
        if isinstance(of, tuple):
            self.masks = nn.ModuleList(of)
        else:
            self.mask = of
        for key, value in own.items():
            self.register_parameter(key, None if value is None else nn.Parameter(value.detach().clone()))
        self._name, self._numbers = name, list(numbers)
        self._combined: tuple[tuple[str, ...], str] | None = None
        self._expression()

    def _expression(self) -> Expression:
        parts: Any = self.masks if "masks" in self._modules else [self.mask]
        expressions = [mask._written_out() for mask in parts]
        constants = [tensor for _, own, _ in expressions for tensor in own]
        parameters = [tensor for *_, own in expressions for tensor in own]
        parameters += [tensor for tensor in self._parameters.values() if tensor is not None]
        recipes = tuple(recipe for recipe, *_ in expressions)
        if self._combined is None or self._combined[0] != recipes:
            made = ops.combine_masks(self._name, list(recipes), self._numbers, constants, parameters)
            self._combined = recipes, made
            self.num_nodes, self.heads = ops.mask_profile(made)[:2]
        return self._combined[1], constants, parameters
