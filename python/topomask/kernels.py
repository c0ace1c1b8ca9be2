"""Graph kernels between nodes for scikit-learn and Gaussian processes."""

from dataclasses import KW_ONLY, dataclass, fields
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from topomask._ops import USUAL, ops
from topomask.graph import Graph
from topomask.masks import GRFMask


@dataclass(eq=False, repr=False)
class NodeKernel:
    """Kernel matrices between nodes, estimated from walks or exact; follows scikit-learn's conventions.

        kernel = NodeKernel(graph, "diffusion:sigma2=4", num_walks=64)
        model = SVC(kernel="precomputed").fit(kernel.fit_transform(train), labels[train])
        model.predict(kernel.transform(test))

    Args:
        graph: N nodes.
        kernel: "reg-laplacian:d=2,sigma2=0.25" (the default), "diffusion:sigma2=1", "p-step:p=2,a=2",
            "inverse-cosine", "matern:nu=1.5,kappa=1", "coefficients:1,0.5,0.25" or "modulation:1,0.5".
        num_walks, p_halt, max_hops, coupling, seed: as in GRFMask, with defaults of their own.
        exact: the untruncated kernel by dense linear algebra instead, for small graphs.
        normalise: how W is made of the graph.

    With walks the matrix is Phi Phi^T on a symmetric W: positive semi-definite whatever the number of walks.
    """

    graph: Graph
    kernel: str | None = None
    _: KW_ONLY
    num_walks: int = 64
    p_halt: float = 0.2
    max_hops: int = 10
    coupling: str = USUAL.coupling
    seed: int = USUAL.seed
    exact: bool = False
    normalise: str = USUAL.normalise

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        return {field.name: getattr(self, field.name) for field in fields(self)}

    def set_params(self, **parameters: Any) -> "NodeKernel":
        known = self.get_params()
        for name, value in parameters.items():
            if name not in known:
                hint = ops.nearest_or_all(name, list(known))
                raise ValueError(f"NodeKernel: unknown parameter '{name}'{hint}")
            setattr(self, name, value)
        return self

    def fit(self, nodes: npt.ArrayLike, y: object = None) -> "NodeKernel":
        """Samples the walks and remembers the training nodes: [n] indices."""
        self.nodes_ = ops.checked_nodes(torch.as_tensor(nodes), self.graph.num_nodes)
        graph = self.graph.to("cpu")
        if self.exact:
            w = graph.normalised(self.normalise)
            self._matrix = ops.exact_kernel(*w.rows, w.directed, self.kernel or "")
            return self
        self._mask = GRFMask(
            graph, self.num_walks, self.p_halt, self.max_hops, seed=self.seed, init=self.kernel,
            coupling=self.coupling, normalise=self.normalise, dtype=torch.float64,
        ).requires_grad_(False)  # fmt: skip
        return self

    def transform(self, nodes: npt.ArrayLike) -> npt.NDArray[np.float64]:
        """[m, n] float64: the kernel between these m nodes and the n training nodes."""
        if not hasattr(self, "nodes_"):
            raise ValueError("NodeKernel: fit must come before transform")
        rows = ops.checked_nodes(torch.as_tensor(nodes), self.graph.num_nodes)
        if self.exact:
            return self._matrix[rows][:, self.nodes_].numpy()
        return ops.feature_products(*self._mask._expression(), rows, self.nodes_).numpy()

    def fit_transform(self, nodes: npt.ArrayLike, y: object = None) -> npt.NDArray[np.float64]:
        """[n, n] float64: the kernel between the training nodes."""
        return self.fit(nodes).transform(nodes)
