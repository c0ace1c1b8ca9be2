"""The paper's masks: graph random features with a learnable modulation, and the exact power series."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from topomask._ops import Pattern, make_pattern, ops
from topomask.features import WalkFeatures, sample_walk_features
from topomask.graph import Graph, Normalisation, signed_seed
from topomask.mask import Mask, PatternBuffers, csr_tensor

DEFAULT_KERNEL = "reg-laplacian:d=2,sigma2=0.25"
MAX_PATTERN_BYTES = 2**31
_SAMPLED_ROWS = 256  # of a mask, to guess how many entries it has


class _FeatureBuffers(PatternBuffers):
    """Walk features as buffers."""

    def __init__(self, features: WalkFeatures) -> None:
        super().__init__(make_pattern(features.row_ptr, features.col))
        self.register_buffer("deposit_ptr", features.deposit_ptr, persistent=False)
        self.register_buffer("hop", features.hop, persistent=False)
        self.register_buffer("load", features.load, persistent=False)

    def values(self, f: Tensor) -> Tensor:
        """[heads, nnz]"""
        return ops.modulate(
            f, self.get_buffer("deposit_ptr"), self.get_buffer("hop"), self.get_buffer("load")
        )


class _WalkSet(nn.Module):
    """One set of walks: Phi, Psi, and the pattern of Phi Psi^T where that is not too large."""

    def __init__(self, query: WalkFeatures, key: WalkFeatures | None, one_hot_keys: bool) -> None:
        super().__init__()
        self.one_hot_keys = one_hot_keys
        self.query = _FeatureBuffers(query)
        self.key = None if key is None else _FeatureBuffers(key)
        self.product: PatternBuffers | None = None
        self.estimated_nnz = self.query.nnz
        if not one_hot_keys:
            left, right = self.query.pattern(), (self.key or self.query).pattern()
            self.estimated_nnz = int(ops.estimate_product_nnz(left, right, _SAMPLED_ROWS))
            if self.estimated_nnz * 16 <= MAX_PATTERN_BYTES:
                self.product = PatternBuffers(list(ops.product_pattern(left, right)))

    @property
    def nnz(self) -> int:
        return self.estimated_nnz if self.product is None else self.product.nnz

    def has_entries(self) -> bool:
        return self.one_hot_keys or self.product is not None

    def values(self, f: Tensor) -> tuple[Tensor, Tensor]:
        query = self.query.values(f)
        return query, (query if self.key is None else self.key.values(f))

    def entries(self, f: Tensor) -> tuple[Pattern, Tensor]:
        if self.one_hot_keys:
            return self.query.pattern(), self.query.values(f)
        query, key = self.values(f)
        assert self.product is not None
        product = self.product.pattern()
        right = self.query if self.key is None else self.key
        return product, ops.sparse_product(query, key, self.query.pattern(), right.pattern(), product)

    def factors(self, f: Tensor) -> tuple[tuple[Pattern, Tensor], tuple[Pattern, Tensor]]:
        query, key = self.values(f)
        right = self.query if self.key is None else self.key
        return (self.query.pattern(), query), (right.pattern(), key)

    def multiply(self, f: Tensor, x: Tensor, transposed: bool) -> Tensor:
        (left, query), (right, key) = self.factors(f)
        query, key = query.to(x.dtype), key.to(x.dtype)
        if self.one_hot_keys:
            return ops.sparse_matmul(query, x, left, transposed)
        if transposed:  # M^T = Psi Phi^T
            return ops.sparse_matmul(key, ops.sparse_matmul(query, x, left, True), right, False)
        return ops.sparse_matmul(query, ops.sparse_matmul(key, x, right, True), left, False)


class GRFMask(Mask):
    """Graph random features with learnable f: M = Phi Psi^T estimates sum_k (f * f)_k W^k at O(N) cost.

    The walks are sampled once, here; the same graph, options and seed give the walks of the C++ library and of
    `topomask features`, bit for bit. `f` is the parameter, [heads, max_hops + 1].

    Args:
        graph: N nodes.
        num_walks: walks from every node.
        p_halt: probability to halt at every node.
        max_hops: length of the longest walk.
        heads: one f for each head, 1 for one mask that serves all.
        seed: everything random follows from it.
        init: f at the start, the same for every head: a node kernel by name (its modulation, or its
            coefficients for asymmetric ensembles), numbers f_0, f_1, ... (zero beyond), or a tensor
            [heads, max_hops + 1]. The default is a regularised Laplacian: positive and decaying.
        ensembles: "shared" (keys use the queries' walks; the diagonal is biased upwards), "independent"
            (unbiased), "asymmetric" (keys are one-hot: M estimates sum_k f_k W^k).
        coupling: of the walks of a node: "independent", "antithetic", "repelling" or "both".
        shared_walks: False samples walks of its own for each head.
        step: "uniform" or "weighted" by |W|.
        length: "geometric", "fixed" (always max_hops), or survival probabilities S(0), ..., S(max_hops).
        importance_weights: False is the ad-hoc variant, every visit counts 1.
        normalise: how W is made of the graph; "none" if it is W already.
        dtype: of f.
    """

    def __init__(
        self,
        graph: Graph,
        num_walks: int = 16,
        p_halt: float = 0.5,
        max_hops: int = 10,
        heads: int = 1,
        seed: int = 0,
        *,
        init: str | Sequence[float] | Tensor = DEFAULT_KERNEL,
        ensembles: Literal["shared", "independent", "asymmetric"] = "shared",
        coupling: Literal["independent", "antithetic", "repelling", "both"] = "independent",
        shared_walks: bool = True,
        step: Literal["uniform", "weighted"] = "uniform",
        length: Literal["geometric", "fixed"] | Sequence[float] = "geometric",
        importance_weights: bool = True,
        normalise: Normalisation = "symmetric",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(graph.num_nodes, heads)
        if ensembles not in ("shared", "independent", "asymmetric"):
            raise ValueError(
                f"ensembles: unknown value '{ensembles}', expected shared, independent, asymmetric"
            )
        self.num_walks, self.p_halt, self.max_hops, self.seed = num_walks, p_halt, max_hops, seed
        self.ensembles = ensembles
        w = graph.to("cpu").normalised(normalise)  # walks and patterns are made there and then moved
        transposed = w if w.is_symmetric() else w.transposed()
        seeds = [signed_seed(seed)] if shared_walks else ops.derive_seeds(signed_seed(seed), heads).tolist()

        def sample(on: Graph, walk_seed: int, ensemble: int) -> WalkFeatures:
            return sample_walk_features(
                on, num_walks, max_hops, p_halt, length=length, step=step, coupling=coupling,
                importance_weights=importance_weights, seed=walk_seed % 2**64, ensemble=ensemble,
            )  # fmt: skip

        sets = []
        for walk_seed in seeds:
            key = None
            if ensembles == "independent":
                key = sample(transposed, walk_seed, 1)
            elif ensembles == "shared" and transposed is not w:
                key = sample(transposed, walk_seed, 0)
            sets.append(_WalkSet(sample(w, walk_seed, 0), key, ensembles == "asymmetric"))
        self.sets = nn.ModuleList(sets)
        series = ops.kernel_series(init, max_hops, ensembles != "asymmetric") if isinstance(init, str) else init
        self.f = nn.Parameter(_initial(series, heads, max_hops + 1, dtype, "GRFMask", "max_hops"))
        self._kept: tuple[Tensor, int, list[tuple[Pattern, Tensor]]] | None = None
        self.to(graph.device)

    def _f(self, index: int) -> Tensor:
        f = self.f if self.f.dtype in (torch.float32, torch.float64) else self.f.float()
        return f if len(self.sets) == 1 else f[index : index + 1]

    def features(self, head: int = 0) -> tuple[Tensor, Tensor]:
        """Phi and Psi of a head as sparse CSR tensors [N, N] in the dtype of f; not differentiable."""
        walks = self._set(0 if len(self.sets) == 1 else head)
        row = head if len(self.sets) == 1 else 0

        query, key = (values[row].detach() for values in walks.values(self._f(head)))
        phi = csr_tensor(walks.query.get_buffer("row_ptr"), walks.query.get_buffer("col"), query)
        if walks.one_hot_keys:
            node = torch.arange(self.num_nodes + 1, device=query.device)
            return phi, csr_tensor(node, node[:-1], query.new_ones(self.num_nodes))
        keys = walks.key or walks.query
        return phi, csr_tensor(keys.get_buffer("row_ptr"), keys.get_buffer("col"), key)

    def _set(self, index: int) -> _WalkSet:
        walks = self.sets[index]
        assert isinstance(walks, _WalkSet)
        return walks

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        if len(self.sets) == 1:
            return self._set(0).multiply(self._f(0), x, transposed)
        parts = [self._set(h).multiply(self._f(h), x[h : h + 1], transposed) for h in range(len(self.sets))]
        return torch.cat(parts)

    def entries(self) -> list[tuple[Pattern, Tensor]] | None:
        if not all(self._set(i).has_entries() for i in range(len(self.sets))):
            return None
        learning = torch.is_grad_enabled() and self.f.requires_grad
        if learning or torch.compiler.is_compiling() or self.f.is_inference():
            return self._entries()
        # Without gradients the entries stay as they are for as long as f does; an optimiser's step changes its version.
        if self._kept is None or self._kept[0] is not self.f or self._kept[1] != self.f._version:
            self._kept = self.f, self.f._version, self._entries()
        return self._kept[2]

    def _entries(self) -> list[tuple[Pattern, Tensor]]:
        return [self._set(i).entries(self._f(i)) for i in range(len(self.sets))]

    def _apply(self, fn, recurse=True):  # type: ignore[no-untyped-def]
        self._kept = None  # moved or converted: f may be the same object with other data
        return super()._apply(fn, recurse)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_kept": None}  # copies and files need not carry it

    def _load_from_state_dict(self, state_dict, prefix, *rest):  # type: ignore[no-untyped-def]
        # Modules of the C++ library call f by its long name.
        if f"{prefix}modulation" in state_dict and f"{prefix}f" not in state_dict:
            state_dict[f"{prefix}f"] = state_dict.pop(f"{prefix}modulation")
        super()._load_from_state_dict(state_dict, prefix, *rest)

    def sparse_factors(self) -> list[tuple[tuple[Pattern, Tensor], tuple[Pattern, Tensor]]] | None:
        if self.ensembles == "asymmetric":
            return None
        return [self._set(i).factors(self._f(i)) for i in range(len(self.sets))]

    def num_entries(self) -> int:
        sets = [self._set(i) for i in range(len(self.sets))]
        return sum(s.nnz for s in sets) if all(s.has_entries() for s in sets) else -1

    def entries_per_head(self) -> bool:
        return len(self.sets) > 1

    def dense(self, dtype: torch.dtype = torch.float32) -> Tensor:
        if self.num_entries() >= 0:
            return super().dense(dtype)
        n = self.num_nodes
        return self.multiply(torch.eye(n, dtype=dtype, device=self.device).expand(self.heads, n, n))

    def cost(self) -> tuple[float, float]:
        total = 0
        for index in range(len(self.sets)):
            walks = self._set(index)
            total += walks.query.nnz
            if not walks.one_hot_keys:
                total += (walks.key or walks.query).nnz
        return total / len(self.sets), 12 * total / len(self.sets)

    def extra_repr(self) -> str:
        return (
            f"{super().extra_repr()}, num_walks={self.num_walks}, p_halt={self.p_halt}, "
            f"max_hops={self.max_hops}, seed={self.seed}, ensembles={self.ensembles}"
        )


class PowerSeriesMask(Mask):
    """M = sum_k alpha_k W^k exactly, by Horner's rule: O(K E) a column. `alpha` is the parameter, [heads, K+1].

    Args:
        graph: N nodes.
        max_power: K, the highest power of W.
        heads: one alpha for each head, 1 for one mask that serves all.
        init: alpha at the start, the same for every head: a node kernel by name, numbers alpha_0, alpha_1, ... (zero
            beyond), or a tensor [heads, max_power + 1].
        normalise: how W is made of the graph; "none" if it is W already.
        dtype: of alpha.
    """

    def __init__(
        self,
        graph: Graph,
        max_power: int = 10,
        heads: int = 1,
        *,
        init: str | Sequence[float] | Tensor = DEFAULT_KERNEL,
        normalise: Normalisation = "symmetric",
        dtype: torch.dtype = torch.float32,
    ) -> None:
        super().__init__(graph.num_nodes, heads)
        w = graph.to("cpu").normalised(normalise)
        self.rows = PatternBuffers(make_pattern(w.row_ptr, w.col))
        self.register_buffer("weight", w.weight.unsqueeze(0), persistent=False)
        series = ops.kernel_series(init, max_power, False) if isinstance(init, str) else init
        self.alpha = nn.Parameter(_initial(series, heads, max_power + 1, dtype, "PowerSeriesMask", "max_power"))
        self.to(graph.device)

    def multiply(self, x: Tensor, transposed: bool = False) -> Tensor:
        self._check_columns(x)
        alpha = self.alpha.to(x.dtype)[:, :, None, None]
        weight, pattern = self.get_buffer("weight").to(x.dtype), self.rows.pattern()
        total = alpha[:, -1] * x
        for k in range(alpha.shape[1] - 2, -1, -1):
            total = ops.sparse_matmul(weight, total, pattern, transposed) + alpha[:, k] * x
        return total

    def cost(self) -> tuple[float, float]:
        entries = float(self.rows.nnz * (self.alpha.shape[1] - 1))
        return entries, 12 * entries

    def extra_repr(self) -> str:
        return f"{super().extra_repr()}, max_power={self.alpha.shape[1] - 1}"


def _initial(
    init: Sequence[float] | Tensor, heads: int, terms: int, dtype: torch.dtype, owner: str, last: str
) -> Tensor:
    """[heads, terms] from numbers (zero beyond them), [terms] or [heads, terms]."""
    values = torch.as_tensor(init, dtype=dtype, device="cpu").detach()
    if values.dim() == 1 and 0 < values.shape[0] < terms:
        values = torch.cat([values, values.new_zeros(terms - values.shape[0])])
    if values.shape not in ((terms,), (heads, terms)):
        raise ValueError(
            f"{owner}: init must be [{last} + 1] = [{terms}] or [heads, {last} + 1] = {[heads, terms]}, "
            f"got {list(values.shape)}"
        )
    return values.expand(heads, terms).clone()
