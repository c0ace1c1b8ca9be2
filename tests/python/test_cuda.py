"""Tensors on a GPU: every mask and operator gives what it gives on the CPU. And, without a GPU, that nothing that is
computed from tensors on one is looked for on the CPU."""

import copy
from pathlib import Path

import pytest
import topomask
import torch
from test_masks import MASKS
from test_ops import SAMPLES
from topomask import attention
from topomask._ops import ops
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.utils import _pytree as pytree

needs_gpu = pytest.mark.skipif(
    not (torch.cuda.is_available() and ops.cuda_is_built()),
    reason="there is no GPU, or topomask was built without CUDA",
)
# Operators that make what belongs to a graph: on the CPU only.
ON_CPU = {
    "graph_from_edges", "graph_from_csr", "graph_from_dense", "load_graph", "knn_graph", "grid_graph", "normalise",
    "transpose_graph", "is_symmetric", "neighbour_pattern", "sample_features", "sample_walks", "derive_seeds",
    "kernel_series", "exact_kernel", "transpose_pattern", "product_pattern", "estimate_product_nnz", "merge_patterns",
    "check_hypercube", "hop_distances", "spe_noise", "favor_projection",
}  # fmt: skip
ON_GPU = sorted(set(SAMPLES) - ON_CPU)


def moved(tree, device: str):
    def move(x):
        return x.detach().to(device).requires_grad_(x.requires_grad) if isinstance(x, torch.Tensor) else x

    return pytree.tree_map(move, tree)


def engines_of(mask: topomask.Mask, kind: str) -> list[str]:
    engines = ["auto", "dense"]
    engines += ["feature"] if kind == "linear" else []
    return engines + (["mask"] if mask.num_entries() >= 0 else [])


def run_attention(mask, inputs: list[torch.Tensor], weights: torch.Tensor, kind: str, engine: str, **options):
    parameters = [p for p in mask.parameters() if p.requires_grad]
    out = attention(*inputs, mask=mask, kind=kind, engine=engine, **options)
    grads = torch.autograd.grad((out.to(weights.dtype) * weights).sum(), inputs + parameters, allow_unused=True)
    return [out, *grads]


@needs_gpu
@pytest.mark.parametrize("kind", ["linear", "softmax"])
@pytest.mark.parametrize("name", MASKS)
def test_masks_agree_with_the_cpu(name: str, kind: str) -> None:
    mask = MASKS[name]
    on_gpu = copy.deepcopy(mask).cuda()
    inputs = [torch.rand(2, 2, 34, 4, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    weights = torch.randn(2, 2, 34, 4, dtype=torch.float64)
    for engine in engines_of(mask, kind):
        expected = run_attention(mask, inputs, weights, kind, engine)
        got = run_attention(on_gpu, moved(inputs, "cuda"), weights.cuda(), kind, engine)
        for a, b in zip(got, expected, strict=True):
            assert (a is None) == (b is None)
            if a is not None:
                assert a.is_cuda
                torch.testing.assert_close(a.cpu(), b, rtol=1e-5, atol=1e-5)


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("kind", ["linear", "softmax"])
def test_narrow_numbers(dtype: torch.dtype, kind: str) -> None:
    mask = copy.deepcopy(MASKS["grf"]).cuda()
    inputs = [torch.rand(2, 2, 34, 16, device="cuda", requires_grad=True) for _ in range(3)]
    weights = torch.randn(2, 2, 34, 16, device="cuda")
    for engine in engines_of(mask, kind):
        expected = run_attention(mask, inputs, weights, kind, engine)
        narrow = [x.detach().to(dtype).requires_grad_() for x in inputs]
        got = run_attention(mask, narrow, weights, kind, engine)
        assert got[0].dtype == dtype
        for a, b in zip(got, expected, strict=True):
            scale = b.abs().max()
            assert ((a.to(b.dtype) - b).abs().max() / scale) < 0.03


@needs_gpu
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("channels", [16, 64, 12])  # 12: not for tensor cores
@pytest.mark.parametrize("engine", ["dense", "mask"])
def test_features_of_narrow_numbers_are_made_on_the_way(engine: str, channels: int, dtype: torch.dtype) -> None:
    torch.manual_seed(0)
    mask = MASKS["grf"]
    narrow = [torch.randn(3, 2, 34, channels).to(dtype) for _ in range(3)]  # of both signs: ReLU cuts half of them
    weights = torch.randn(3, 2, 34, channels).to(dtype)
    expected = run_attention(
        mask, [x.double().requires_grad_() for x in narrow], weights.double(), "linear", engine, epsilon=0.1
    )
    inputs = moved([x.requires_grad_() for x in narrow], "cuda")
    got = run_attention(copy.deepcopy(mask).cuda(), inputs, weights.cuda(), "linear", engine, epsilon=0.1)
    for a, b in zip(got, expected, strict=True):
        a, b = a.double().cpu(), b.double()
        assert (a - b).norm() < 0.03 * b.norm()
        assert (a - b).abs().max() < 0.05 * b.abs().max()
    for x, gradient in zip(inputs[:2], got[1:3]):
        assert (gradient[x < 0] == 0).all()


@needs_gpu
def test_dense_features_take_no_pass_of_their_own() -> None:
    mask = copy.deepcopy(MASKS["grf"]).cuda()
    inputs = [torch.randn(2, 2, 34, 16, device="cuda", dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    weights = torch.ones(2, 2, 34, 16, device="cuda", dtype=torch.bfloat16)
    run_attention(mask, inputs, weights, "linear", "dense")  # finds out what belongs to the graph
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as profile:
        run_attention(mask, inputs, weights, "linear", "dense")
    assert not {event.key for event in profile.key_averages()} & {"aten::clamp_min", "aten::repeat_interleave"}


@needs_gpu
@pytest.mark.parametrize("engine", ["dense", "feature", "mask"])
@pytest.mark.parametrize("feature_map", ["relu", "elu1", "squared-relu", "identity", "favor"])
def test_feature_maps_agree_with_the_cpu(feature_map: str, engine: str) -> None:
    torch.manual_seed(1)
    mask = MASKS["grf"]
    on_gpu = copy.deepcopy(mask).cuda()
    inputs = [torch.rand(2, 2, 34, 8, dtype=torch.float64, requires_grad=True) for _ in range(3)]
    weights = torch.randn(2, 2, 34, 8, dtype=torch.float64)
    moved_inputs, moved_weights = moved(inputs, "cuda"), weights.cuda()
    expected = run_attention(mask, inputs, weights, "linear", engine, feature_map=feature_map)
    run_attention(on_gpu, moved_inputs, moved_weights, "linear", engine, feature_map=feature_map)
    torch.cuda.set_sync_debug_mode("error")
    try:
        got = run_attention(on_gpu, moved_inputs, moved_weights, "linear", engine, feature_map=feature_map)
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for a, b in zip(got, expected, strict=True):
        torch.testing.assert_close(a.cpu(), b, rtol=1e-5, atol=1e-5)


@needs_gpu
@pytest.mark.parametrize("kind", ["linear", "softmax"])
@pytest.mark.parametrize("name", MASKS)
def test_a_step_never_waits_for_the_device(name: str, kind: str) -> None:
    mask = copy.deepcopy(MASKS[name]).cuda()
    for dtype in (torch.float32, torch.bfloat16):
        inputs = [torch.randn(2, 2, 34, 16, device="cuda", dtype=dtype, requires_grad=True) for _ in range(3)]
        weights = torch.ones(2, 2, 34, 16, device="cuda", dtype=dtype)
        for engine in engines_of(mask, kind):
            run_attention(mask, inputs, weights, kind, engine)  # finds out what belongs to the graph
            torch.cuda.set_sync_debug_mode("error")
            try:
                run_attention(mask, inputs, weights, kind, engine)
            finally:
                torch.cuda.set_sync_debug_mode("default")


@needs_gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_opcheck(name: str) -> None:
    torch.library.opcheck(getattr(ops, name).default, moved(SAMPLES[name], "cuda"))


@needs_gpu
@pytest.mark.parametrize("engine", ["mask", "dense"])
@pytest.mark.parametrize("axes", [(1, 2), (2, 3), (0, 1)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_results_lie_in_memory_as_v_does(
    dtype: torch.dtype, axes: tuple[int, int], engine: str, karate: topomask.Graph
) -> None:
    mask = topomask.GRFMask(karate, 8, 0.3, 3, heads=2).to("cuda")
    q, k, v = (torch.rand(2, 2, 34, 8, device="cuda", dtype=dtype) for _ in range(3))
    expected = attention(q, k, v, mask=mask, engine=engine)
    q, k, v = (x.transpose(*axes).contiguous().transpose(*axes).requires_grad_() for x in (q, k, v))
    out = attention(q, k, v, mask=mask, engine=engine)
    assert out.stride() == torch.empty_like(v).stride()
    torch.testing.assert_close(out, expected)
    options = ("linear", "relu", engine, None, None, 0, None, None, False)
    torch.library.opcheck(ops.attention.default, (q, k, v, *mask._expression(), *options))


@needs_gpu
def test_a_step_can_be_captured() -> None:
    """Points to attention under a fresh mask in one CUDA graph, replayed on other points."""
    points = torch.rand(2048, 3, device="cuda")
    q, k, v = (torch.randn(1, 1, 2048, 16, device="cuda") for _ in range(3))

    def near() -> topomask.Graph:
        return topomask.Graph.from_points(points, k=3, symmetric=False)

    mask = topomask.GRFMask(
        near(), 27, max_hops=3, length="fixed", coupling="repelling", ensembles="asymmetric", normalise="random-walk"
    )

    @torch.no_grad()
    def step() -> torch.Tensor:
        mask.rebuild(near())
        return attention(q, k, v, mask=mask)

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = step()
    points.copy_(torch.rand_like(points))
    q.copy_(torch.randn_like(q))
    graph.replay()
    assert torch.equal(out, step())


@needs_gpu
@pytest.mark.parametrize("name", ON_GPU)
def test_operators_agree_with_the_cpu(name: str) -> None:
    def results(device: str):
        return pytree.tree_leaves(getattr(ops, name)(*moved(SAMPLES[name], device)))

    for a, b in zip(results("cuda"), results("cpu"), strict=True):
        torch.testing.assert_close(a.cpu(), b)


@needs_gpu
@pytest.mark.parametrize("name", ["grf", "grf per head", "power series", "sum of entries", "forest"])
def test_compiled_matches_eager(name: str) -> None:
    layer = topomask.nn.TransformerBlock(16, 2, copy.deepcopy(MASKS[name])).cuda()
    compiled = torch.compile(layer, fullgraph=True, backend="aot_eager")
    x = torch.randn(2, 34, 16, device="cuda")

    def run(function):
        layer.zero_grad()
        out = function(x)
        out.square().sum().backward()
        return [out.detach(), *(p.grad.clone() for p in layer.parameters() if p.requires_grad)]

    for a, b in zip(run(layer), run(compiled), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-4)


@needs_gpu
def test_a_mask_is_made_where_its_graph_is(karate: topomask.Graph) -> None:
    graph = karate.to("cuda")
    assert graph.device.type == "cuda" and graph.normalised().transposed().device == graph.device
    mask = topomask.GRFMask(graph, 8, 0.3, 3, heads=2)
    assert {x.device for x in (*mask.parameters(), *mask.buffers())} == {graph.device}
    q = torch.rand(1, 2, 34, 4)
    out = attention(q.cuda(), q.cuda(), q.cuda(), mask=mask)
    torch.testing.assert_close(out.cpu(), attention(q, q, q, mask=topomask.GRFMask(karate, 8, 0.3, 3, heads=2)))
    with pytest.raises(ValueError, match="mask 'grf' must be on cpu as q, got cuda:0"):
        attention(q, q, q, mask=mask)


@needs_gpu
def test_a_pattern_must_stay_within_itself() -> None:
    q = torch.rand(1, 2, 6, 4, device="cuda")
    rows, ones = torch.arange(7, device="cuda"), torch.ones(1, 6, device="cuda")
    for dtype, column in ((torch.int32, 6), (torch.int64, -1), (torch.int64, 2**32 + 1)):
        columns = torch.full((6,), column, dtype=dtype, device="cuda")
        with pytest.raises(ValueError, match="a column is out of range: expected 0 to 5, got"):
            attention(q, q, q, csr=(rows, columns))
        with pytest.raises(ValueError, match="a column is out of range: expected 0 to 5, got"):
            topomask.SparseMask(rows, columns, ones)
    for bad in ([0, 1, 2, 3, 4, 5, 9], [0, 3, 1, 3, 4, 5, 6], [1, 1, 2, 3, 4, 5, 6]):
        with pytest.raises(ValueError, match="row_ptr must ascend from 0 to the 6 entries of col"):
            attention(q, q, q, csr=(torch.tensor(bad, device="cuda"), rows[:6]))
    torch.testing.assert_close(attention(q, q, q, csr=(rows, rows[:6])), q)
    empty = rows.new_zeros(7), rows.new_zeros(0)
    assert attention(q, q, q, csr=empty).count_nonzero() == 0


def pretend_on_gpu(mask: topomask.Mask, mode: FakeTensorMode) -> topomask.Mask:
    """The mask with tensors that have shapes and a device alone."""
    mask = copy.deepcopy(mask)

    def pretend(x: torch.Tensor) -> torch.Tensor:
        with mode:
            return torch.empty(x.shape, dtype=x.dtype, device="cuda:0")

    for module in mask.modules():
        for name, p in module._parameters.items():
            if p is not None:
                module._parameters[name] = torch.nn.Parameter(pretend(p), p.requires_grad)
        for name, b in module._buffers.items():
            if b is not None:
                module._buffers[name] = pretend(b)
    return mask


@pytest.mark.parametrize("kind", ["linear", "softmax"])
@pytest.mark.parametrize("name", MASKS)
def test_everything_stays_on_the_device(name: str, kind: str) -> None:
    mode = FakeTensorMode()
    mask = pretend_on_gpu(MASKS[name], mode)
    engines = engines_of(MASKS[name], kind)
    with mode:
        for dtype in (torch.float32, torch.float16):
            inputs = [torch.empty(2, 2, 34, 4, dtype=dtype, device="cuda:0", requires_grad=True) for _ in range(3)]
            for engine in engines:
                out = attention(*inputs, mask=mask, kind=kind, engine=engine)
                assert out.device == torch.device("cuda:0") and out.dtype == dtype
            out = attention(*inputs, mask=mask, feature_map="favor")
            assert out.device == torch.device("cuda:0") and out.dtype == dtype
        assert mask.dense().device == torch.device("cuda:0")


@needs_gpu
@pytest.mark.parametrize("backend", ["gloo", "nccl", "cpu:gloo,cuda:nccl"])
def test_a_process_group_carries_tensors_of_a_gpu(tmp_path: Path, backend: str) -> None:
    """One rank, whose group is really used. With nccl alone, what lies on the CPU goes through the GPU."""
    distributed = topomask.distributed
    graph = topomask.Graph.grid(9, 7)
    settings = {"num_walks": 4, "max_hops": 2, "seed": 3}
    f = torch.tensor([1.0, 0.5, 0.25])
    rows = [torch.rand(1, 2, 63, 8) for _ in range(3)]

    def leaves() -> list[torch.Tensor]:
        return [x.detach().cuda().requires_grad_() for x in (*rows, f)]

    expected = leaves()
    mask = topomask.GRFMask(graph, init=f, **settings).cuda()
    with torch.no_grad():
        mask.f.copy_(f.cuda().expand_as(mask.f))
    one = attention(*expected[:3], mask)
    one.square().sum().backward()
    torch.distributed.init_process_group(backend, init_method=f"file://{tmp_path / 'store'}", rank=0, world_size=1)
    try:
        own = leaves()
        part = distributed.DistributedGraph.from_graph(graph, torch.zeros(63, dtype=torch.int32)).normalised()
        out = distributed.attention(*own[:3], distributed.GRFMask(part, own[3], **settings))
        out.square().sum().backward()
        assert out.is_cuda and part.halo_rows(own[0][0, 0]).shape == (0, 8)
        torch.testing.assert_close(out, one)
        for mine, other in zip(own[:3], expected[:3]):
            torch.testing.assert_close(mine.grad, other.grad)
        torch.testing.assert_close(own[3].grad, mask.f.grad.reshape(-1, 3).sum(0))
        torch.testing.assert_close(distributed.attention(*own[:3]), attention(*own[:3]))
        with pytest.raises(ValueError, match="must be on cuda:0 as q, got cpu"):
            distributed.attention(*own[:3], distributed.GRFMask(part, f, **settings))
    finally:
        torch.distributed.destroy_process_group()
