"""What attention, neighbours and fresh masks cost when Python calls them, on the GPU.

python bench/from_python.py [--json FILE]
python bench/from_python.py --small   # host times of attention on 64 nodes, on one core and without a GPU

Two times of each call, in milliseconds, medians: `host` is how long the call itself takes while the GPU is idle, `device` how
long one of many calls in a row takes. The larger one is what a program pays.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch

import topomask


def host_time(call: Callable[[], object], calls: int = 20, repeats: int = 40, of: Callable = statistics.median) -> float:
    wait = torch.cuda.synchronize if torch.cuda.is_available() else lambda: None
    times = []
    for _ in range(repeats):
        wait()
        begin = time.perf_counter()
        for _ in range(calls):
            call()
        times.append((time.perf_counter() - begin) / calls * 1e3)
    wait()
    return of(times)


def device_time(call: Callable[[], object], calls: int = 20, repeats: int = 15) -> float:
    times = []
    for _ in range(repeats):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        begin.record()
        for _ in range(calls):
            call()
        end.record()
        torch.cuda.synchronize()
        times.append(begin.elapsed_time(end) / calls)
    return statistics.median(times)


def attention_calls(
    heads_of_f: int, shape: tuple[int, ...] = (1, 8, 32768, 64), device: str = "cuda", dtype: torch.dtype = torch.bfloat16
) -> dict[str, Callable[[], object]]:
    """As `topomask bench attention --graph torus:32768,8 --walks 8 --heads 8 --dtype bfloat16` has them."""
    mask = topomask.GRFMask(topomask.Graph.load(f"torus:{shape[2]},8").to(device), 8, heads=heads_of_f)
    q, k, v = (torch.randn(shape, device=device, dtype=dtype) for _ in range(3))
    learned = [x.clone().requires_grad_() for x in (q, k, v)]
    weight = torch.randn_like(v)

    def masked(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return topomask.attention(q, k, v, mask)

    def calls_of(attend: Callable[..., torch.Tensor]) -> list[Callable[[], object]]:
        return [
            torch.no_grad()(lambda: attend(q, k, v)),
            lambda: torch.autograd.grad(attend(*learned), [*learned, mask.f], weight),
        ]

    name = f"attention, f for {'all heads' if heads_of_f == 1 else 'each head'}"
    eager, compiled = calls_of(masked), calls_of(torch.compile(masked, fullgraph=True))
    return {
        f"{name}: forward": eager[0],
        f"{name}: forward+backward": eager[1],
        f"{name}: forward, compiled": compiled[0],
        f"{name}: forward+backward, compiled": compiled[1],
    }


def calls_of_torch(
    shape: tuple[int, ...] = (1, 8, 64, 64), device: str = "cuda", dtype: torch.dtype = torch.bfloat16
) -> dict[str, Callable[[], object]]:
    """What torch.compile adds to one operator of torch's own, where its kernels cost little."""
    learned = [torch.randn(shape, device=device, dtype=dtype, requires_grad=True) for _ in range(3)]
    weight = torch.randn_like(learned[0])

    def plain(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(q, k, v)

    compiled = torch.compile(plain, fullgraph=True)
    name = "torch's own attention of 64 nodes: forward+backward"
    return {
        name: lambda: torch.autograd.grad(plain(*learned), learned, weight),
        f"{name}, compiled": lambda: torch.autograd.grad(compiled(*learned), learned, weight),
    }


def captured_step() -> Callable[[], object]:
    """Neighbours, a fresh mask of 3 hops and attention, replayed as one CUDA graph."""
    points = torch.rand(32768, 3, device="cuda")
    q, k, v = (torch.randn(1, 1, 32768, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    mask = topomask.GRFMask(
        topomask.Graph.from_points(points, k=3), 27, max_hops=3, length="fixed", coupling="repelling",
        ensembles="asymmetric", normalise="random-walk", init=[1.0, 0.5, 0.25, 0.125],
    )  # fmt: skip

    @torch.no_grad()
    def step() -> torch.Tensor:
        mask.rebuild(topomask.Graph.from_points(points, k=3))
        return topomask.attention(q, k, v, mask)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()

    def replay(tensors_of: Callable[[], object] = step) -> None:  # the graph reads them wherever they were
        graph.replay()

    return replay


def small_calls() -> None:
    """The least of many times, since others may use the cores."""
    torch.set_num_threads(1)
    tiny = ((1, 2, 64, 8), "cpu", torch.float32)
    for name, call in (attention_calls(1, *tiny) | calls_of_torch(*tiny)).items():
        for _ in range(5):
            call()
        print(f"{name:<66} {host_time(call, repeats=150, of=min):8.4f} ms", flush=True)
    print(f"torch {torch.__version__}, topomask {topomask.__version__}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--json", help="write the times there too")
    parser.add_argument("--small", action="store_true", help="host times of small calls, without a GPU")
    arguments = parser.parse_args()
    if arguments.small:
        return small_calls()
    if not torch.cuda.is_available():
        print("no GPU on this machine: nothing to measure")
        return
    few, many = torch.rand(32768, 3, device="cuda"), torch.rand(1_000_000, 3, device="cuda")
    calls = attention_calls(1) | attention_calls(8) | calls_of_torch()
    calls["points to attention, captured"] = captured_step()
    for name, points, k in (("32,768", few, 3), ("32,768", few, 16), ("a million", many, 3), ("a million", many, 16)):
        calls[f"Graph.from_points of {name}, k={k}"] = lambda points=points, k=k: topomask.Graph.from_points(points, k)
    results = {}
    print(f"{'call':<58} {'host ms':>8} {'device ms':>10}")
    for name, call in calls.items():
        for _ in range(5):
            call()
        results[name] = {"host": host_time(call), "device": device_time(call)}
        print(f"{name:<58} {results[name]['host']:8.4f} {results[name]['device']:10.4f}", flush=True)
    print(f"{torch.cuda.get_device_name()}, torch {torch.__version__}, topomask {topomask.__version__}")
    if arguments.json:
        with open(arguments.json, "w") as file:
            json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
