"""Masked attention beside its peers in one run.

python bench/peers.py [--device cuda] [--graph torus:32768,8] [--json FILE] [--picture FILE.svg]

Three tasks on one graph. "neighbours": softmax over the neighbours in the graph; topomask, torch.sparse,
FlexAttention and PyG compute the same numbers. "walks": linear attention with a GRF mask, beside unmasked
linear attention, which leaves the graph out. "all": softmax over all nodes. Times are medians in milliseconds,
taken in turns. Apart from them: set-up, what is made once for a graph, and the first forward pass, which may
compile. What cannot run is listed with its error.
"""

import argparse
import contextlib
import gc
import html
import importlib
import json
import math
import platform
import statistics
import time
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass, field

import torch
from torch import Tensor

import topomask

Attend = Callable[[Tensor, Tensor, Tensor], Tensor]


@dataclass
class Contestant:
    task: str
    name: str
    attend: Attend | None = None
    parameters: list[Tensor] = field(default_factory=list)
    setup_ms: float | None = None
    first_ms: float | None = None
    note: str = ""
    forward_ms: float | None = None
    both_ms: float | None = None
    spread_ms: float | None = None
    difference: float | None = None
    errors: dict[str, str] = field(default_factory=dict)


def first_line(error: BaseException) -> str:
    text = next((line.strip() for line in str(error).splitlines() if line.strip()), "")
    return f"{type(error).__name__}: {text[:200]}"


def cpu_name() -> str:
    with contextlib.suppress(OSError), open("/proc/cpuinfo") as lines:
        for line in lines:
            if line.startswith("model name"):
                return line.split(":", 1)[1].strip()
    return platform.machine()


def synchronise(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize()


def timed(device: torch.device, call: Callable[[], object]) -> tuple[object, float]:
    synchronise(device)
    begin = time.perf_counter()
    result = call()
    synchronise(device)
    return result, (time.perf_counter() - begin) * 1e3


def per_call_ms(device: torch.device, call: Callable[[], object], calls: int) -> float:
    """Of one of several calls in a row, which a GPU is given before it is waited for."""

    def repeat() -> None:
        for _ in range(calls):
            call()

    return timed(device, repeat)[1] / calls


def unmasked_linear(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
    a, b = torch.relu(q) + 1e-3, torch.relu(k) + 1e-3
    return (a @ (b.transpose(-1, -2) @ v)) / (a @ b.sum(-2, keepdim=True).transpose(-1, -2))


def with_itself(graph: topomask.Graph) -> topomask.Graph:
    """The graph with every node among its own neighbours."""
    row_ptr, col, _ = graph.rows
    row = torch.repeat_interleave(torch.arange(graph.num_nodes), row_ptr.diff().cpu())
    loops = torch.arange(graph.num_nodes)
    edges = torch.stack([torch.cat([row, loops]), torch.cat([col.cpu().long(), loops])])
    keys = torch.unique(edges[0] * graph.num_nodes + edges[1])
    counts = torch.bincount(keys // graph.num_nodes, minlength=graph.num_nodes)
    pointers = torch.cat([torch.zeros(1, dtype=torch.long), counts.cumsum(0)])
    return topomask.Graph.from_csr(pointers, (keys % graph.num_nodes).int())


class Bench:
    def __init__(self, settings: argparse.Namespace):
        self.settings = settings
        self.device = torch.device(settings.device)
        self.dtype = getattr(torch, settings.dtype)
        self.graph = topomask.Graph.load(settings.graph)
        self.neighbours = with_itself(self.graph)
        self.n = self.graph.num_nodes
        torch.manual_seed(0)
        shape = (1, settings.heads, self.n, settings.d)
        self.q, self.k, self.v, self.grad = (
            torch.randn(shape, dtype=torch.float32).to(self.device, self.dtype) for _ in range(4)
        )
        self.contestants: list[Contestant] = []
        self.outputs: dict[int, Tensor] = {}

    def add(self, task: str, name: str, make: Callable[[Contestant], Attend], note: str = "") -> None:
        """`make` does what is done once for a graph, and is timed."""
        one = Contestant(task, name, note=note)
        try:
            one.attend, one.setup_ms = timed(self.device, lambda: make(one))  # type: ignore[assignment]
        except Exception as error:  # noqa: BLE001: whatever a peer throws is a result
            one.errors["set-up"] = first_line(error)
        self.contestants.append(one)

    # ---- ours ----

    def our_neighbours(self, one: Contestant) -> Attend:
        mask = topomask.NeighbourMask(self.graph, hops=1).to(self.device)
        return lambda q, k, v: topomask.attention(q, k, v, mask, kind="softmax")

    def our_walks(self, one: Contestant) -> Attend:
        mask = topomask.GRFMask(self.graph.to(self.device), self.settings.walks, self.settings.p_halt)
        mask.num_entries()
        one.parameters = list(mask.parameters())
        return lambda q, k, v: topomask.attention(q, k, v, mask)

    # ---- peers ----

    def csr(self, dtype: torch.dtype) -> Tensor:
        row_ptr, col, _ = self.neighbours.rows
        ones = torch.ones(col.numel(), dtype=dtype)
        return torch.sparse_csr_tensor(row_ptr, col.long(), ones, (self.n, self.n))

    def edge_index(self) -> Tensor:
        """[2, edges] int64: from a neighbour to the node that attends."""
        row_ptr, col, _ = self.neighbours.rows
        row = torch.repeat_interleave(torch.arange(self.n), row_ptr.diff())
        return torch.stack([col.long(), row]).to(self.device)

    def flex(self, one: Contestant) -> Attend:
        from torch.nn.attention.flex_attention import create_block_mask, flex_attention

        joined = torch.zeros(self.n, self.n, dtype=torch.bool, device=self.device)
        source, target = self.edge_index()
        joined[target, source] = True

        def make_mask() -> object:
            return create_block_mask(
                lambda b, h, i, j: joined[i, j], None, None, self.n, self.n, device=self.device, _compile=True
            )

        _, first = timed(self.device, make_mask)
        mask, again = timed(self.device, make_mask)
        empty = mask.sparsity()  # type: ignore[attr-defined]
        one.note = f"block mask {first:.1f} ms at first, {again:.2f} again; {empty:.1f} % of its blocks are empty"
        compiled = torch.compile(flex_attention, dynamic=False)
        return lambda q, k, v: compiled(q, k, v, block_mask=mask)  # type: ignore[return-value]

    def sparse_softmax(self, one: Contestant) -> Attend:
        pattern = self.csr(self.dtype).to(self.device)
        scale = self.settings.d**-0.5

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            heads = []
            for h in range(q.size(1)):
                scores = torch.sparse.sampled_addmm(pattern, q[0, h], k[0, h].t(), beta=0.0, alpha=scale)
                largest = torch.segment_reduce(scores.values(), "max", offsets=scores.crow_indices())
                rows = torch.repeat_interleave(largest, scores.crow_indices().diff())
                weights = torch.sparse_csr_tensor(
                    scores.crow_indices(), scores.col_indices(), (scores.values() - rows).exp(), scores.shape
                )
                heads.append((weights @ v[0, h]) / (weights @ torch.ones_like(v[0, h, :, :1])))
            return torch.stack(heads)[None]

        return attend

    def sparse_walks(self, one: Contestant) -> Attend:
        mask = topomask.GRFMask(self.graph, self.settings.walks, self.settings.p_halt)
        entries = mask.entries()  # of a fixed f: the peer is given its values
        assert entries is not None
        ((row_ptr, col), values), *_ = entries
        pattern = torch.sparse_csr_tensor(
            row_ptr, col.long(), values[0].detach().to(self.dtype), (self.n, self.n)
        ).to(self.device)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            a, b = torch.relu(q) + 1e-3, torch.relu(k) + 1e-3
            heads = []
            for h in range(q.size(1)):
                scores = torch.sparse.sampled_addmm(pattern, a[0, h], b[0, h].t(), beta=0.0)
                weighted = scores.values() * pattern.values()
                weights = torch.sparse_csr_tensor(
                    scores.crow_indices(), scores.col_indices(), weighted, scores.shape
                )
                heads.append((weights @ v[0, h]) / (weights @ torch.ones_like(v[0, h, :, :1])))
            return torch.stack(heads)[None]

        return attend

    def transformer_conv(self, one: Contestant) -> Attend:
        from torch_geometric.nn import TransformerConv

        edges, d = self.edge_index(), self.settings.d
        layer = TransformerConv(d, d, heads=self.settings.heads).to(self.device, self.dtype)

        def attend(q: Tensor, k: Tensor, v: Tensor) -> Tensor:
            by_node = [x[0].permute(1, 0, 2) for x in (q, k, v)]
            out = layer.propagate(edges, query=by_node[0], key=by_node[1], value=by_node[2], edge_attr=None)
            return out.permute(1, 0, 2)[None]

        return attend

    def gather_all(self) -> None:
        eager = "plain torch"
        self.add("neighbours", "topomask", self.our_neighbours)
        self.add("neighbours", "torch.sparse", self.sparse_softmax, "SDDMM, softmax and SpMM, head by head")
        self.add("neighbours", "PyG TransformerConv", self.transformer_conv, "without its projections")
        self.add("walks", "topomask", self.our_walks, "with the gradient of f; on a GPU with new values of M")
        self.add("walks", "torch.sparse", self.sparse_walks, "SDDMM and SpMM, head by head; M is given")
        self.add("walks", "unmasked linear", lambda one: unmasked_linear, eager)
        self.add("walks", "unmasked linear, compiled", lambda one: torch.compile(unmasked_linear))
        if not self.settings.no_sdpa:
            softmax = torch.nn.functional.scaled_dot_product_attention
            self.add("all", "SDPA", lambda one: softmax, "flash where torch has it")
        # Last: where it fails on a GPU, it may take the whole context with it.
        self.add("neighbours", "FlexAttention", self.flex)

    def works(self, one: Contestant) -> dict[str, Callable[[], object]]:
        attend = one.attend
        assert attend is not None
        leaves = [x.detach().clone().requires_grad_() for x in (self.q, self.k, self.v)]

        def forward() -> Tensor:
            with torch.no_grad():
                return attend(self.q, self.k, self.v)

        def both() -> object:
            return torch.autograd.grad(attend(*leaves), [*leaves, *one.parameters], self.grad)

        return {"forward": forward, "forward+backward": both}

    def run(self) -> None:
        self.gather_all()
        calls: list[tuple[Contestant, str, Callable[[], object], int]] = []
        times: dict[tuple[int, str], list[float]] = {}
        for number, one in enumerate(self.contestants):
            if one.attend is None:
                continue
            for name, call in self.works(one).items():
                try:
                    result, first = timed(self.device, call)  # compiles, and makes what is made once
                    if name == "forward":
                        one.first_ms = first
                        self.outputs[number] = result.float()  # type: ignore[attr-defined]
                    _, warm = timed(self.device, call)
                except Exception as error:  # noqa: BLE001
                    one.errors[name] = first_line(error)
                    continue
                per_turn = max(1, min(20, int(20 / warm))) if self.device.type == "cuda" else 1
                calls.append((one, name, call, per_turn))
                times[id(one), name] = []
            gc.collect()
        for _ in range(self.settings.repeats):
            for one, name, call, per_turn in calls:
                times[id(one), name].append(per_call_ms(self.device, call, per_turn))
        for one, name, _, _ in calls:
            taken = times[id(one), name]
            if name == "forward":
                one.forward_ms, one.spread_ms = statistics.median(taken), max(taken) - min(taken)
            else:
                one.both_ms = statistics.median(taken)
        ours = self.outputs.get(0)
        for number, one in enumerate(self.contestants):
            if one.task == "neighbours" and ours is not None and number in self.outputs:
                one.difference = ((self.outputs[number] - ours).abs().max() / ours.abs().max()).item()

    def ratio(self, one: Contestant, what: str) -> float | None:
        """To ours of the same task; "all" is compared with the walks."""
        task = "walks" if one.task == "all" else one.task
        ours = next(x for x in self.contestants if x.task == task and x.name == "topomask")
        mine, theirs = getattr(one, what), getattr(ours, what)
        return None if mine is None or theirs is None else mine / theirs

    def report(self) -> dict[str, object]:
        rows = []
        for one in self.contestants:
            row = {k: v for k, v in asdict(one).items() if k not in ("attend", "parameters")}
            ratios = {name: self.ratio(one, name) for name in ("forward_ms", "both_ms")}
            rows.append(row | {"times_topomask": ratios})
        name = torch.cuda.get_device_name() if self.device.type == "cuda" else cpu_name()
        setting = {**vars(self.settings), "nodes": self.n, "entries": self.neighbours.num_entries}
        machine = {
            "name": name, "threads": torch.get_num_threads(), "torch": torch.__version__,
            "topomask": topomask.__version__,
        }  # fmt: skip
        return {"results": rows, "setting": setting, "machine": machine}


def cell(number: float | None, form: str = "{:.3f}") -> str:
    return "" if number is None else form.format(number)


def print_table(bench: Bench) -> None:
    line = "{:<11} {:<26} {:>10} {:>10} {:>10} {:>10} {:>8} {:>8} {:>10}  {}"
    names = ("set-up ms", "first ms", "forward", "fwd+bwd", "x ours", "x ours", "difference", "note")
    print(line.format("task", "attention", *names))
    for one in sorted(bench.contestants, key=lambda x: ("neighbours", "walks", "all").index(x.task)):
        ratios = (cell(bench.ratio(one, what), "{:.2f}") for what in ("forward_ms", "both_ms"))
        print(
            line.format(
                one.task, one.name, cell(one.setup_ms, "{:.1f}"), cell(one.first_ms, "{:.1f}"),
                cell(one.forward_ms), cell(one.both_ms), *ratios, cell(one.difference, "{:.1e}"), one.note,
            )
        )  # fmt: skip
        for what, error in one.errors.items():
            print(f"{'':<11} {'':<26} {what}: {error}")


def draw(report: dict[str, object], path: str) -> None:
    """Horizontal bars, forward and forward+backward, as SVG: nothing but this file is needed for it."""
    bars = [
        (row["task"], row["name"], label, row[key])
        for row in report["results"]  # type: ignore[attr-defined]
        for label, key in (("forward", "forward_ms"), ("forward+backward", "both_ms"))
        if row[key] is not None
    ]
    left, width, height = 330, 460, 22
    largest = max(ms for *_, ms in bars)
    smallest = min(ms for *_, ms in bars)
    decades = max(1e-9, math.log10(largest / smallest))
    parts = []
    for i, (task, name, label, ms) in enumerate(bars):
        y = 40 + i * height
        long = 20 + (width - 20) * math.log10(ms / smallest) / decades
        colour = "#2b6cb0" if name == "topomask" else "#a0aec0"
        shade = 1.0 if label == "forward" else 0.6
        words = html.escape(f"{task}: {name}, {label}")
        parts.append(
            f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{words}</text>'
            f'<rect x="{left}" y="{y + 2}" width="{long:.1f}" height="{height - 5}" '
            f'fill="{colour}" opacity="{shade}"/>'
            f'<text x="{left + long + 6:.1f}" y="{y + 14}">{ms:.3g} ms</text>'
        )
    setting, machine = report["setting"], report["machine"]
    sizes = f"{setting['graph']}, {setting['heads']} heads, d {setting['d']}, {setting['dtype']}"  # type: ignore[index]
    title = f"{sizes}, {machine['name']} (log scale)"  # type: ignore[index]
    total = 50 + len(bars) * height
    with open(path, "w") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 110}" height="{total}" '
            f'font-family="sans-serif" font-size="12"><rect width="100%" height="100%" fill="white"/>'
            f'<text x="12" y="22" font-size="14">{html.escape(title)}</text>{"".join(parts)}</svg>\n'
        )


def main() -> None:
    has_gpu = torch.cuda.is_available()
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--device", default="cuda" if has_gpu else "cpu")
    parser.add_argument("--graph", help="as for the program (default: torus:32768,8 on a GPU, else torus:2048,8)")
    parser.add_argument("--walks", type=int, default=8)
    parser.add_argument("--p-halt", type=float, default=0.5)
    parser.add_argument("--heads", type=int, default=8)
    parser.add_argument("--d", type=int, default=64)
    parser.add_argument("--dtype", help="of q, k and v (default: bfloat16 on a GPU, else float32)")
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--no-sdpa", action="store_true", help="leave out softmax over all nodes")
    parser.add_argument("--json", help="write the results there")
    parser.add_argument("--picture", help="draw them there, as SVG")
    settings = parser.parse_args()
    on_gpu = settings.device.startswith("cuda")
    settings.graph = settings.graph or ("torus:32768,8" if on_gpu else "torus:2048,8")
    settings.dtype = settings.dtype or ("bfloat16" if on_gpu else "float32")
    warnings.filterwarnings("ignore", message=".*(Sparse|_compile flag).*")
    for module in ("torch_geometric.nn", "torch.nn.attention.flex_attention", "torch._dynamo"):
        with contextlib.suppress(Exception):  # so that set-up does not count it; where it is used, errors show
            importlib.import_module(module)
    bench = Bench(settings)
    bench.run()
    print_table(bench)
    report = bench.report()
    about = report["setting"] | report["machine"]  # type: ignore[operator]
    print(", ".join(f"{name} {value}" for name, value in about.items() if value is not None))
    if settings.json:
        with open(settings.json, "w") as file:
            json.dump(report, file, indent=1)
    if settings.picture:
        draw(report, settings.picture)


if __name__ == "__main__":
    main()
