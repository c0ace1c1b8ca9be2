"""Loads the operators into torch, and gives their shapes for tracing where they depend on the data or the device.

The computation, its gradients and all other shapes are in C++ (src/ops). Here torch learns what the remaining
operators return without running them, so that torch.compile and torch.export can trace through.
"""

import json
import math
import re
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

_FOLDER = Path(__file__).parent
SUPPORTED_TORCH = ((2, 11), (2, 13))


def version() -> str:
    """The version of topomask, from the project's VERSION file."""
    return (_FOLDER / "VERSION").read_text().strip()


def check_torch(torch_version: str) -> None:
    """Raises ImportError unless topomask supports that torch."""
    low, high = SUPPORTED_TORCH
    if not low <= tuple(map(int, re.findall(r"\d+", torch_version)[:2])) <= high:
        raise ImportError(
            f"topomask {version()} supports torch {low[0]}.{low[1]} to {high[0]}.{high[1]}, "
            f"but torch {torch_version} is installed"
        )


def program() -> Path:
    """Path of the `topomask` command line program."""
    return _FOLDER / "bin" / "topomask"


check_torch(torch.__version__)
try:
    torch.ops.load_library(str(_FOLDER / "lib" / "libtopomask_ops.so"))
except OSError as error:
    raise ImportError(
        f"topomask's operators do not load ({error.__cause__ or error}): build and install topomask for torch "
        f"{torch.__version__} with 'pip install . --no-build-isolation'"
    ) from error
ops = torch.ops.topomask
CATALOGUE: dict[str, dict[str, Any]] = json.loads(ops.option_catalogue())
"""Options of functions: their defaults and their words."""
USUAL = SimpleNamespace(**{name: own["default"] for name, own in CATALOGUE.items()})
"""What the library takes where an option is not given."""


def check_types(owner: str, kind: type, /, *, optional: bool = False, **values: Any) -> None:
    """Raises TypeError where a value is not of that type, or None if it may be: torch's own message has four lines.

    Numbers of other libraries are numbers, too.
    """
    words = {Tensor: "a tensor", int: "a whole number", float: "a number", str: "a word"}
    method = {int: "__index__", float: "__float__"}.get(kind)
    for name, value in values.items():
        fits = not isinstance(value, bool) and (isinstance(value, kind) or (method and hasattr(value, method)))
        if not fits and not (optional and value is None):
            raise TypeError(f"{owner}: {name} must be {words[kind]}, got {type(value).__name__}")


def check_words(owner: str, /, **words: str) -> None:
    """Raises ValueError where an option has no such word."""
    for name, word in words.items():
        known = list(CATALOGUE[name]["words"])
        if word not in known:
            raise ValueError(f"{owner}: unknown {name} '{word}'{ops.nearest_or_all(word, known)}")


def _unknown_size() -> torch.SymInt:
    return torch.library.get_ctx().new_dynamic_size()


def _new(device: Any, *tensors: tuple[Any, ...]) -> tuple[Tensor, ...]:
    """The dtype and the sizes of each."""
    return tuple(torch.empty(sizes, dtype=dtype, device=device) for dtype, *sizes in tensors)


def _wide(x: Tensor) -> torch.dtype:
    return torch.float64 if x.dtype == torch.float64 else torch.float32


def _graph(device: Any, nodes: Any, entries: Any = None) -> tuple[Tensor, ...]:
    entries = _unknown_size() if entries is None else entries
    return _new(device, (torch.int64, nodes + 1), (torch.int32, entries), (torch.float32, entries))


def _graph_from_edges(edges: Tensor, weight: Any, nodes: Any, *others: Any) -> tuple[Tensor, ...]:
    rows = _graph(edges.device, _unknown_size() if nodes is None else nodes)
    graphs = _unknown_size() if any(isinstance(x, Tensor) for x in others) else 0
    return *rows, _flag(), *_new(edges.device, (torch.int64, graphs))


def _flag(*_: Any) -> Tensor:
    return torch.empty((), dtype=torch.bool)


def _lists(points: Tensor, size: Any, queries: Tensor | None) -> tuple[Tensor, ...]:
    rows = (points if queries is None else queries).shape[0]
    return _new(points.device, (torch.int32, rows, size), (_wide(points), rows, size), (torch.int32, rows))


def _features(row_ptr: Tensor, *_: Any) -> tuple[Tensor, ...]:
    entries, deposits = _unknown_size(), _unknown_size()
    rows = ((torch.int64, *row_ptr.shape), (torch.int32, entries), (torch.int64, entries + 1))
    return _new(row_ptr.device, *rows, (torch.int16, deposits), (torch.float32, deposits))


def _view(mask: str, constants: list[Tensor], parameters: list[Tensor], what: str, dtype: Any) -> Tensor:
    nodes, heads, entries, counted, per_head, rank = ops.mask_profile(mask)
    rows = 1 if per_head else max([1, *(p.shape[0] for p in parameters)])
    sizes = {"dense": (heads, nodes, nodes), "factors": (2, heads, nodes, rank)}
    size = sizes.get(what) or (rows * (entries if counted else _unknown_size()),)
    return constants[0].new_empty(size, dtype=dtype)


def _pattern(mask: str, constants: list[Tensor], parameters: list[Tensor]) -> list[Tensor]:
    nodes, heads, _, _, per_head, _ = ops.mask_profile(mask)
    patterns = (_graph(constants[0].device, nodes) for _ in range(heads if per_head else 1))
    return [tensor for row_ptr, col, _ in patterns for tensor in (row_ptr, col)]


def _attention(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> Tensor:
    return torch.empty_like(v) if v.is_cuda else v.new_empty(v.shape)  # a GPU keeps the order of v in memory


def _attention_forward(q: Tensor, k: Tensor, v: Tensor, mask: str, *others: Any) -> list[Tensor]:
    batch, nodes = (1, q.shape[0]) if q.dim() == 3 else (q.shape[0], q.shape[2])
    shape = [int(size) for size in (q.shape[1], nodes, q.shape[-1], v.shape[-1])]
    saved = ops.attention_saved(mask, shape, q.dtype, q.device, *others[2:5])
    # Each begins with 1 where the first size is that of one batch entry.
    sizes = ((batch * first if per_entry else first, *rest) for per_entry, first, *rest in saved)
    return [_attention(q, k, v), *_new(v.device, *((_wide(q), *size) for size in sizes))]


_SHAPES: dict[str, Callable[..., Any]] = {
    "graph_from_edges": _graph_from_edges,
    "graph_from_csr": lambda rows, col, _: (*_graph(rows.device, rows.shape[0] - 1, col.shape[0]), _flag()),
    "graph_from_dense": lambda matrix: (*_graph(matrix.device, matrix.shape[0]), _flag()),
    "grid_graph": lambda extent, diagonals, wrap: _graph(None, math.prod(extent)),
    "is_symmetric": _flag,
    "knn": lambda points, k, queries, *_: _lists(points, k, queries),
    "radius": lambda points, r, most, queries, *_: _lists(points, most, queries),
    "knn_edges": lambda points, *_: points.new_empty(2, _unknown_size(), dtype=torch.int64),
    "radius_edges": lambda points, *_: points.new_empty(2, _unknown_size(), dtype=torch.int64),
    "batch_ptrs": lambda batch, _, both: batch.new_empty(1 + both, _unknown_size(), dtype=torch.int64),
    "derive_seeds": lambda seed, count: torch.empty(count, dtype=torch.int64),
    "sample_features": _features,
    "mask_view": _view,
    "mask_pattern": _pattern,
    "attention": _attention,
    "attention_forward": _attention_forward,
}
for _name, _shapes in _SHAPES.items():
    torch.library.register_fake(f"topomask::{_name}", _shapes)
