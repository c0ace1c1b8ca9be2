"""Graph kernels between nodes for scikit-learn and Gaussian processes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from topomask._ops import ops
from topomask.graph import Graph, Normalisation
from topomask.mask import csr_tensor
from topomask.masks import GRFMask

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt


class NodeKernel:
    """Kernel matrices between nodes, estimated from walks or exact; follows scikit-learn's conventions.

        kernel = NodeKernel(graph, "diffusion:sigma2=4", num_walks=64)
        model = SVC(kernel="precomputed").fit(kernel.fit_transform(train), labels[train])
        model.predict(kernel.transform(test))

    Args:
        graph: N nodes.
        kernel: "reg-laplacian:d=2,sigma2=0.25" (the default), "diffusion:sigma2=1", "p-step:p=2,a=2", "inverse-cosine",
            "matern:nu=1.5,kappa=1", "coefficients:1,0.5,0.25" or "modulation:1,0.5".
        num_walks, p_halt, max_hops, coupling, seed: of the walks, as in GRFMask.
        exact: the untruncated kernel by dense linear algebra instead, for small graphs.
        normalise: how W is made of the graph.

    With walks the matrix is Phi Phi^T on a symmetric W: positive semi-definite whatever the number of walks.
    """

    def __init__(
        self,
        graph: Graph,
        kernel: str | None = None,
        *,
        num_walks: int = 64,
        p_halt: float = 0.2,
        max_hops: int = 10,
        coupling: str = "independent",
        seed: int = 0,
        exact: bool = False,
        normalise: Normalisation = "symmetric",
    ) -> None:
        self.graph, self.kernel, self.exact, self.normalise = graph, kernel, exact, normalise
        self.num_walks, self.p_halt, self.max_hops = num_walks, p_halt, max_hops
        self.coupling, self.seed = coupling, seed

    _parameters = (
        "graph",
        "kernel",
        "num_walks",
        "p_halt",
        "max_hops",
        "coupling",
        "seed",
        "exact",
        "normalise",
    )

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self._parameters}

    def set_params(self, **parameters: Any) -> NodeKernel:
        for name, value in parameters.items():
            if name not in self._parameters:
                raise ValueError(
                    f"NodeKernel: unknown parameter '{name}', expected {', '.join(self._parameters)}"
                )
            setattr(self, name, value)
        return self

    def fit(self, nodes: npt.ArrayLike, y: object = None) -> NodeKernel:
        """Samples the walks and remembers the training nodes: [n] indices."""
        self.nodes_ = self._checked(nodes)
        graph = self.graph.to("cpu")
        if self.exact:
            w = graph.normalised(self.normalise)
            self._matrix = ops.exact_kernel(w.row_ptr, w.col, w.weight, w.directed, self.kernel or "")
            return self
        mask = GRFMask(
            graph, self.num_walks, self.p_halt, self.max_hops, seed=self.seed, init=self.kernel,
            coupling=self.coupling, normalise=self.normalise, dtype=torch.float64,  # type: ignore[arg-type]
        )  # fmt: skip
        with torch.no_grad():
            query, key = mask.features()
        self._query, self._key = query, key
        return self

    def transform(self, nodes: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """[m, n] float64: the kernel between these m nodes and the n training nodes."""
        if not hasattr(self, "nodes_"):
            raise ValueError("NodeKernel: fit must come before transform")
        rows = self._checked(nodes)
        if self.exact:
            block = self._matrix[rows][:, self.nodes_]
        else:
            block = _products(self._query, rows, self._key, self.nodes_)
        return block.numpy()

    def fit_transform(self, nodes: npt.ArrayLike, y: object = None) -> npt.NDArray[np.float64]:
        """[n, n] float64: the kernel between the training nodes."""
        return self.fit(nodes).transform(nodes)

    def _checked(self, nodes: npt.ArrayLike) -> torch.Tensor:
        index = torch.as_tensor(nodes)
        count = self.graph.num_nodes
        if index.dtype == torch.bool:
            if index.shape != (count,):
                raise ValueError(f"NodeKernel: a boolean mask of nodes must be [{count}], got {list(index.shape)}")
            return index.nonzero()[:, 0]
        if index.dim() == 2 and index.shape[1] == 1:
            index = index[:, 0]
        if index.dim() != 1 or index.is_floating_point() or bool(((index < 0) | (index >= count)).any()):
            raise ValueError(f"NodeKernel: nodes must be [n] whole numbers from 0 to {count - 1}")
        return index.long()


def _row_entries(matrix: torch.Tensor, rows: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Of some rows of a CSR matrix: how many entries each has [n], and where they stand, row by row."""
    starts = matrix.crow_indices()[rows]
    counts = matrix.crow_indices()[rows + 1] - starts
    within = torch.arange(int(counts.sum())) - torch.repeat_interleave(counts.cumsum(0) - counts, counts)
    return counts, torch.repeat_interleave(starts, counts) + within


def _products(
    left: torch.Tensor, rows: torch.Tensor, right: torch.Tensor, columns: torch.Tensor
) -> torch.Tensor:
    """left[rows] right[columns]^T as [m, n]; a few columns at a time are written out densely."""
    counts, entry = _row_entries(left, rows)
    row_ptr = torch.cat([counts.new_zeros(1), counts.cumsum(0)])
    picked = csr_tensor(row_ptr, left.col_indices()[entry], left.values()[entry], left.shape[1])
    step = max(1, 2**24 // max(1, right.shape[1]))
    blocks = [torch.empty(rows.shape[0], 0, dtype=left.dtype)]
    for some in columns.split(step):
        counts, entry = _row_entries(right, some)
        dense = torch.zeros(right.shape[1], some.shape[0], dtype=left.dtype)
        column = torch.repeat_interleave(torch.arange(some.shape[0]), counts)
        dense[right.col_indices()[entry], column] = right.values()[entry]
        blocks.append(picked @ dense)
    return torch.cat(blocks, 1)
