"""The package and the command line program: the same features, the same attention, the same choices."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import scipy.sparse
import topomask
import torch
from topomask._ops import check_torch, program


def run(*arguments: str) -> str:
    done = subprocess.run([program(), *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "flags, options",
    [
        ([], {}),
        (["--coupling", "both", "--p-halt", "0.2"], {"coupling": "both", "p_halt": 0.2}),
        (["--ensembles", "independent", "--step", "weighted"], {"ensembles": "independent", "step": "weighted"}),
        (["--ensembles", "asymmetric", "--length", "fixed"], {"ensembles": "asymmetric", "length": "fixed"}),
        (["--length", "survival:1,0.9,0.2,0.2,0", "--ad-hoc"],
         {"length": [1, 0.9, 0.2, 0.2, 0], "importance_weights": False}),
    ],
)  # fmt: skip
def test_features_are_identical(tmp_path: Path, flags: list[str], options: dict) -> None:
    phi, psi = tmp_path / "phi.npz", tmp_path / "psi.npz"
    seed = str(2**63 + 5)
    run("features", "--graph", "ba:60,3,1", "--kernel", "diffusion:sigma2=2", "--walks", "6", "--max-hops", "4",
        "--seed", seed, "--out", str(phi), "--out-keys", str(psi), *flags)  # fmt: skip
    graph = topomask.Graph.load("ba:60,3,1")
    settings = {"p_halt": 0.5, **options}
    mask = topomask.GRFMask(
        graph, 6, max_hops=4, seed=int(seed), init="diffusion:sigma2=2", dtype=torch.float64, **settings
    )
    for ours, path in zip(mask.features(), (phi, psi)):
        theirs = scipy.sparse.load_npz(path)
        assert np.array_equal(ours.crow_indices(), theirs.indptr)
        assert np.array_equal(ours.col_indices(), theirs.indices)
        assert np.array_equal(ours.values().float(), theirs.data)


@pytest.mark.parametrize("engine", ["mask", "dense"])
@pytest.mark.parametrize(
    "flags, options",
    [
        ([], {}),
        (["--kind", "softmax"], {"kind": "softmax"}),
        (["--feature-map", "favor"], {"feature_map": "favor", "feature_seed": 7}),
        (["--feature-map", "elu1"], {"feature_map": "elu1"}),
    ],
)
def test_attention_is_equal(tmp_path: Path, flags: list[str], options: dict, engine: str) -> None:
    q, k, v = (torch.randn(2, 3, 64, 5) for _ in range(3))
    for name, x in zip("qkv", (q, k, v)):
        np.save(tmp_path / f"{name}.npy", x.numpy())
    run("attend", "--graph", "grid:8x8", "--walks", "8", "--p-halt", "0.3", "--seed", "7", "--max-hops", "6",
        "--modulation", "1,0.5,0.25", *flags, "--engine", engine, "--out", str(tmp_path / "o.npy"),
        "--q", str(tmp_path / "q.npy"), "--k", str(tmp_path / "k.npy"), "--v", str(tmp_path / "v.npy"))  # fmt: skip
    mask = topomask.GRFMask(topomask.Graph.grid(8, 8), 8, 0.3, 6, seed=7, init=[1, 0.5, 0.25])
    out = topomask.attention(q, k, v, mask=mask, engine=engine, **options)
    torch.testing.assert_close(
        out.detach(), torch.from_numpy(np.load(tmp_path / "o.npy")), rtol=1e-4, atol=1e-5
    )


@pytest.mark.parametrize(
    "graph, flags, make",
    [
        ("karate", ["--f", "1,0.5", "--key-init", "1,0.25,0.125"],
         lambda g: topomask.GRFMask(g, 4, seed=3, init=[1, 0.5], key_init=[1, 0.25, 0.125])),
        ("tree:4", ["--mask", "forest", "--a", "-0.7", "--b", "0.2"], lambda g: topomask.ForestMask(g, a=-0.7, b=0.2)),
        ("hypercube:5", ["--mask", "hypercube-heat", "--beta", "0.3"], lambda g: topomask.HypercubeHeatMask(g, beta=0.3)),
        ("karate", ["--mask", "shortest-path", "--decay", "0.4"],
         lambda g: topomask.ShortestPathMask(g, decay=0.4)),
        ("karate", ["--mask", "neighbours", "--hops", "2"], lambda g: topomask.NeighbourMask(g, 2)),
        ("karate", ["--mask", "degree"], lambda g: topomask.DegreeMask(g)),
        ("karate", ["--mask", "causal"], lambda g: topomask.CausalMask(g.num_nodes)),
        ("karate", ["--mask", "power-series", "--coefficients", "1,0.5,0.2"],
         lambda g: topomask.PowerSeriesMask(g, init=[1, 0.5, 0.2])),
        ("grid:5x6", ["--mask", "toeplitz", "--decay", "0.3"], lambda g: topomask.ToeplitzMask((5, 6), decay=0.3)),
        ("path:40", ["--mask", "spe-sine", "--realisations", "9"], lambda g: topomask.SineSPEMask(40, 9, seed=3)),
        ("path:40", ["--mask", "spe-convolutional"], lambda g: topomask.ConvolutionalSPEMask(40, 64, seed=3)),
        ("grid:5x6", ["--global-tokens", "2", "--modulation", "1,0.5", "--p-halt", "0.4"],
         lambda g: topomask.GlobalTokensMask(topomask.GRFMask(g, 4, 0.4, seed=3, init=[1, 0.5]), 2)),
    ],
)  # fmt: skip
def test_masks_are_equal(tmp_path: Path, graph: str, flags: list[str], make) -> None:
    mask = make(topomask.Graph.load(graph)).double()
    q, k, v = (torch.rand(2, 3, mask.num_nodes, 5, dtype=torch.float64) for _ in range(3))
    files = []
    for name, x in zip("qkv", (q, k, v)):
        np.save(tmp_path / f"{name}.npy", x.numpy())
        files += [f"--{name}", str(tmp_path / f"{name}.npy")]
    walks = [] if "--mask" in flags and flags[1] not in ("grf", "ad-hoc", "grf-asymmetric") else ["--walks", "4"]
    run("attend", "--graph", graph, *flags, "--seed", "3", *walks, *files, "--out", str(tmp_path / "o.npy"))
    out = topomask.attention(q, k, v, mask=mask).detach().numpy()
    np.testing.assert_allclose(out, np.load(tmp_path / "o.npy"), rtol=2e-6)


@pytest.mark.parametrize(
    "graph, flags, make",
    [
        ("grid:20x20", [], lambda g: topomask.GRFMask(g, 4, 0.5)),
        ("grid:8x8", ["--walks", "64"], lambda g: topomask.GRFMask(g, 64, 0.5)),
        ("grid:30x30", ["--mask", "power-series"], lambda g: topomask.PowerSeriesMask(g)),
        ("grid:30x30", ["--mask", "none"], lambda g: topomask.NoMask(g.num_nodes)),
        ("grid:9x9", ["--mask", "toeplitz"], lambda g: topomask.ToeplitzMask((9, 9))),
        ("path:3000", ["--mask", "toeplitz"], lambda g: topomask.ToeplitzMask((3000,))),
        ("path:3000", ["--mask", "forest"], lambda g: topomask.ForestMask(g)),
        ("hypercube:10", ["--mask", "hypercube-heat"], lambda g: topomask.HypercubeHeatMask(g)),
        ("karate", ["--mask", "degree", "--global-tokens", "1"],
         lambda g: topomask.GlobalTokensMask(topomask.DegreeMask(g))),
    ],
)  # fmt: skip
def test_the_same_plan_is_made(tmp_path: Path, graph: str, flags: list[str], make) -> None:
    mask = make(topomask.Graph.load(graph))
    q = torch.randn(1, 2, mask.num_nodes, 16)
    np.save(tmp_path / "q.npy", q.numpy())
    files = [word for name in ("--q", "--k", "--v") for word in (name, str(tmp_path / "q.npy"))]
    walks = [] if "--walks" in flags or "--mask" in flags else ["--walks", "4"]
    plan = json.loads(run("attend", "--graph", graph, *flags, *walks, *files, "--print-plan", "--json"))["plan"]
    with torch.no_grad():  # the program's f does not learn
        text = topomask.plan_attention(q, q, mask)
    assert text.startswith(f"engine: {plan['engine']} (least predicted time")


def test_ensembles_are_compared_alike() -> None:
    text = topomask.plan_ensembles(topomask.Graph.load("karate"), 0.2, "diffusion:sigma2=1", 0.3, max_hops=4, d=8)
    flags = ["--error", "0.2", "--kernel", "diffusion:sigma2=1", "--p-halt", "0.3", "--max-hops", "4", "--d", "8"]
    assert text in run("plan", "--graph", "karate", *flags, "--threads", str(torch.get_num_threads()))
    assert [line.split()[0] for line in text.splitlines()[1:4]] == ["shared", "independent", "asymmetric"]


def test_a_plan_counts_new_values_where_f_learns() -> None:
    mask = topomask.GRFMask(topomask.Graph.load("ba:400,4"), 8, 0.1)
    q = torch.randn(1, 1, 400, 16)

    def seconds() -> float:
        lines = topomask.plan_attention(q, q, mask).splitlines()
        return float(next(line for line in lines if line.startswith("  mask")).split()[4])

    learning = seconds()
    mask.requires_grad_(False)
    assert learning > seconds()


STATE_DICTS = {
    "grf": (["--graph", "grid:6x6"], lambda: topomask.GRFMask(topomask.Graph.grid(6, 6), 4, 0.5, heads=2, seed=3)),
    "power-series": (["--graph", "karate"], lambda: topomask.PowerSeriesMask(topomask.Graph.load("karate"), heads=2)),
    "toeplitz": (["--graph", "grid:5x6"], lambda: topomask.ToeplitzMask((5, 6), 2)),
    "degree": (["--graph", "karate"], lambda: topomask.DegreeMask(topomask.Graph.load("karate"), 2)),
    "forest": (["--graph", "tree:4"], lambda: topomask.ForestMask(topomask.Graph.load("tree:4"), 2)),
    "hypercube-heat": (["--graph", "hypercube:5"], lambda: topomask.HypercubeHeatMask(5, 2)),
    "shortest-path": (["--graph", "karate"], lambda: topomask.ShortestPathMask(topomask.Graph.load("karate"), 33, 2)),
    "learned-features": (["--graph", "karate"], lambda: topomask.LearnedFeaturesMask(34, 5, 2, init=torch.rand(2, 34, 5))),
    "spe-sine": (["--graph", "path:30"], lambda: topomask.SineSPEMask(30, 64, 2, seed=3)),
    "spe-convolutional": (["--graph", "path:30"], lambda: topomask.ConvolutionalSPEMask(30, 64, 2, seed=3)),
}


@pytest.mark.parametrize("name", STATE_DICTS)
def test_state_dicts_cross_over(tmp_path: Path, name: str) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    graph, make = STATE_DICTS[name]
    mask = make()
    with torch.no_grad():
        for parameter in mask.parameters():
            parameter.mul_(0.5 + torch.rand_like(parameter))
    safetensors.save_file(mask.state_dict(), tmp_path / "mask.safetensors")
    q = torch.rand(1, 2, mask.num_nodes, 4)
    np.save(tmp_path / "q.npy", q.numpy())
    files = [word for flag in ("--q", "--k", "--v") for word in (flag, str(tmp_path / "q.npy"))]
    walks = ["--walks", "4"] if name == "grf" else []
    run("attend", *graph, "--mask", name, "--seed", "3", *walks, *files, "--out", str(tmp_path / "o.npy"),
        "--parameters", str(tmp_path / "mask.safetensors"), "--out-parameters", str(tmp_path / "again.safetensors"))
    out = topomask.attention(q, q, q, mask=mask).detach()
    torch.testing.assert_close(out, torch.from_numpy(np.load(tmp_path / "o.npy")), rtol=1e-4, atol=1e-5)
    fresh = make()
    fresh.load_state_dict(safetensors.load_file(tmp_path / "again.safetensors"))
    for ours, theirs in zip(fresh.parameters(), mask.parameters(), strict=True):
        assert torch.equal(ours, theirs)


def test_state_dicts_of_layers_and_of_other_masks(tmp_path: Path) -> None:
    safetensors = pytest.importorskip("safetensors.torch")
    q = np.random.default_rng(0).random((36, 4), dtype=np.float32)
    np.save(tmp_path / "q.npy", q)
    files = [word for flag in ("--q", "--k", "--v") for word in (flag, str(tmp_path / "q.npy"))]
    path = tmp_path / "mask.safetensors"

    def attend(*flags: str) -> tuple[int, str]:
        done = subprocess.run(
            [program(), "attend", "--graph", "grid:6x6", *files, "--out", str(tmp_path / "o.npy"),
             "--parameters", str(path), *flags], capture_output=True, text=True, check=False,
        )  # fmt: skip
        return done.returncode, done.stderr

    mask = topomask.GRFMask(topomask.Graph.grid(6, 6), 4, 0.5)
    state = {f"layer.mask.{name}": value for name, value in mask.state_dict().items()}
    safetensors.save_file(state, path)
    assert attend() == (0, "")
    safetensors.save_file({**state, "other.mask.f": mask.f.detach().clone()}, path)
    code, message = attend()
    assert code == 2 and "one mask, but it holds layer.mask.f, other.mask.f" in message
    safetensors.save_file(mask.state_dict(), path)
    code, message = attend("--mask", "toeplitz")
    assert code == 2 and "named 'offsets'" in message
    code, message = attend("--mask", "causal")
    assert code == 2 and "'f' is no parameter of this mask" in message
    # Names of versions before 0.1.
    safetensors.save_file({"layer.mask.modulation": mask.f.detach()}, path)
    assert attend() == (0, "")
    mask.load_state_dict({"modulation": torch.full_like(mask.f, 2)})
    assert (mask.f == 2).all()
    series = topomask.PowerSeriesMask(topomask.Graph.grid(6, 6), 3)
    series.load_state_dict({"coefficients": torch.full_like(series.alpha, 2)})
    assert (series.alpha == 2).all()


def test_module_runs_the_program() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "topomask", "--version"], capture_output=True, text=True, check=True
    )
    assert topomask.__version__ in done.stdout


def test_supported_versions_of_torch() -> None:
    for good in ("2.11.0", "2.12.1+cu130", "2.13.0"):
        check_torch(good)
    for bad in ("2.10.1", "2.14.0a0", "3.0.0"):
        with pytest.raises(ImportError, match=f"supports torch 2.11 to 2.13, but torch {bad.split('+')[0]}"):
            check_torch(bad)


def test_node_kernel(karate: topomask.Graph) -> None:
    train, test = np.arange(0, 34, 2), np.arange(1, 34, 2)
    exact = topomask.NodeKernel(karate, "diffusion:sigma2=2", exact=True)
    matrix = exact.fit_transform(train)
    w = karate.normalised().to_dense()
    heat = torch.matrix_exp(w - torch.eye(34)).numpy()
    np.testing.assert_allclose(matrix, heat[np.ix_(train, train)], atol=1e-6)
    walks = topomask.NodeKernel(karate, "diffusion:sigma2=2", num_walks=4096, p_halt=0.2)
    assert np.linalg.eigvalsh(walks.fit_transform(train)).min() > -1e-9
    np.testing.assert_allclose(walks.transform(test), heat[np.ix_(test, train)], atol=0.05)
    assert topomask.NodeKernel(**walks.get_params()).set_params(seed=3).seed == 3
    with pytest.raises(ValueError, match="whole numbers from 0 to 33"):
        exact.transform([34])


def test_shards_of_the_program_load_in_python(tmp_path: Path) -> None:
    run("partition", "--graph", "ba:60,3,1", "--parts", "3", "--out", str(tmp_path / "parts"))
    whole, again = topomask.Graph.load("ba:60,3,1"), topomask.Graph.load(f"shards:{tmp_path / 'parts'}")
    for one, other in zip(whole.rows, again.rows, strict=True):
        assert torch.equal(one, other)
    part = topomask.partition(whole, 3)
    load_file = pytest.importorskip("safetensors.torch").load_file
    for p in range(3):
        shard = load_file(tmp_path / "parts" / f"part-{p:04}.safetensors")
        assert torch.equal(shard["nodes"], (part == p).nonzero()[:, 0])
        local = torch.cat([shard["nodes"], shard["halo"]])
        degrees = shard["row_ptr"].diff()
        assert torch.equal(degrees, whole.degrees()[shard["nodes"]])
        rows = torch.repeat_interleave(shard["nodes"], degrees)
        expected = whole.to_dense()[rows, local[shard["col"].long()]]
        assert torch.equal(expected.float(), shard["weight"])


@pytest.mark.parametrize(
    "arguments", [["graph", "--graph", "karate"], ["bench", "distributed", "--graph", "grid:8x8", "--ranks", "2", "--repeats", "1"]]
)
def test_lost_output_is_an_error(arguments: list[str]) -> None:
    with Path("/dev/full").open("w") as full:
        done = subprocess.run([program(), *arguments, "--json"], stdout=full, stderr=subprocess.PIPE, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "topomask: could not write to standard output; is the disk full?\n")


def test_closed_streams_are_not_files(tmp_path: Path) -> None:
    """A file must not get the number of a closed stream, and with it what is printed."""
    command = f"{program()} graph --graph karate --json --out-ids {tmp_path}/ids 0<&- 1>&- 2>&-"
    assert subprocess.run(command, shell=True, check=False, timeout=100).returncode == 0
    assert (tmp_path / "ids").read_text().splitlines()[0] == "0\t0"
    ranks = f"{program()} bench distributed --graph grid:8x8 --ranks 2 --repeats 1 --json 1>&-"
    assert subprocess.run(ranks, shell=True, check=False, timeout=100).returncode == 0
