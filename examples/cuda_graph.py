"""A moving point cloud: neighbours, a fresh mask and attention at every step, captured in one CUDA graph.

python examples/cuda_graph.py

Every step rebuilds the graph of 3 nearest neighbours, computes the exact mask of 3 hops, and runs attention
with it. All sizes are known beforehand, so nothing waits for the GPU and the whole step can be replayed.
"""

import torch

import topomask


def main() -> None:
    if not torch.cuda.is_available():
        print("no GPU on this machine: nothing to capture")
        return
    points = torch.rand(32768, 3, device="cuda")
    q, k, v = (torch.randn(1, 1, 32768, 64, device="cuda", dtype=torch.bfloat16) for _ in range(3))
    mask = topomask.GRFMask(
        topomask.Graph.from_points(points, k=3, symmetric=False), 27, max_hops=3, length="fixed", coupling="repelling",
        ensembles="asymmetric", normalise="random-walk", init=[1.0, 0.5, 0.25, 0.125],
    )  # fmt: skip

    @torch.no_grad()
    def step() -> torch.Tensor:
        mask.rebuild(topomask.Graph.from_points(points, k=3, symmetric=False))
        return topomask.attention(q, k, v, mask=mask)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()

    points.copy_(torch.rand_like(points))  # the cloud moves; the captured step reads it where it is
    graph.replay()
    print("replayed step equals a fresh one:", torch.equal(out, step()))
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(100):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    print(f"{begin.elapsed_time(end) / 100:.3f} ms per step of {points.shape[0]} points")


if __name__ == "__main__":
    main()
