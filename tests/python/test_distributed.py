"""Several processes against one: the program with --ranks and under torchrun, the package under torchrun."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import topomask
import torch
from topomask._load import program

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "distributed_node_classifier.py"
TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
ONE_THREAD = {**os.environ, "OMP_NUM_THREADS": "1"}


def run(*command: str) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=ONE_THREAD, timeout=300)
    assert done.returncode == 0, done.stderr
    return done.stdout


def fails(*command: str, **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env={**ONE_THREAD, **environment}, timeout=300
    )
    assert done.returncode == 2, (done.returncode, done.stderr)
    return done.stderr


@pytest.mark.parametrize("ensembles", ["shared", "independent", "asymmetric"])
def test_features_on_ranks_are_the_same_file(tmp_path: Path, ensembles: str) -> None:
    files = []
    for ranks in ([], ["--ranks", "3"]):
        phi, psi = tmp_path / f"phi{len(ranks)}.npz", tmp_path / f"psi{len(ranks)}.npz"
        run(str(program()), "features", "--graph", "ba:60,3,1", "--coupling", "both", "--ensembles", ensembles,
            "--out", str(phi), "--out-keys", str(psi), *ranks)  # fmt: skip
        files.append((phi.read_bytes(), psi.read_bytes()))
    assert files[0] == files[1]


@pytest.mark.parametrize("shape", [(1, 2, 63, 8), (63, 2, 8), (63, 8)])
@pytest.mark.parametrize("torchrun", [False, True])
def test_attend_on_ranks(tmp_path: Path, shape: tuple[int, ...], torchrun: bool) -> None:
    if torchrun and len(shape) < 4:
        pytest.skip("one shape under torchrun is enough")
    operands = []
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(ord(name)).random(shape))
        operands += [f"--{name}", str(tmp_path / f"{name}.npy")]
    attend = [str(program()), "attend", *operands, "--seed", "3", "--out"]
    run(*attend, str(tmp_path / "one.npy"), "--graph", "grid:9x7")
    if torchrun:
        run(str(program()), "partition", "--graph", "grid:9x7", "--parts", "2", "--out", str(tmp_path / "parts"))
        run(*TORCHRUN, "--nproc-per-node", "2", "--no-python", "--", *attend, str(tmp_path / "many.npy"), "--graph",
            f"shards:{tmp_path / 'parts'}")  # fmt: skip
    else:
        run(*attend, str(tmp_path / "many.npy"), "--graph", "grid:9x7", "--ranks", "3")
    one, many = np.load(tmp_path / "one.npy"), np.load(tmp_path / "many.npy")
    assert one.shape == many.shape
    np.testing.assert_allclose(one, many, rtol=0, atol=1e-12)


@pytest.mark.parametrize("engine", ["mask", "feature"])
def test_no_more_is_sent_than_must_be(engine: str) -> None:
    found = json.loads(
        run(str(program()), "bench", "distributed", "--graph", "grid:40x40", "--ranks", "3", "--engine", engine,
            "--heads", "2", "--channels", "8", "--repeats", "1", "--json")  # fmt: skip
    )
    assert found["engine"] == engine
    assert 0 < found["bytes_sent"] <= 1.1 * found["bytes_floor"]
    assert sum(part["nodes"] for part in found["parts"]) == 1600


def test_the_survivors_of_a_killed_rank_say_so() -> None:
    running = subprocess.Popen(
        [program(), "bench", "distributed", "--graph", "grid:30x30", "--ranks", "3", "--repeats", "1000000"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=ONE_THREAD,
    )  # fmt: skip
    children: list[str] = []
    for _ in range(300):
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children").read_text().split()
        if len(children) == 3:
            break
        time.sleep(0.1)
    time.sleep(3)
    os.kill(int(children[1]), signal.SIGKILL)
    _, errors = running.communicate(timeout=100)
    assert running.returncode != 0
    assert "rank 1 was killed by signal 9" in errors
    for rank in (0, 2):
        assert f"rank {rank} of 3: the exchange of" in errors
    assert len(errors.strip().splitlines()) == 3, errors


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    parts = str(tmp_path / "parts")
    run(str(program()), "partition", "--graph", "grid:9x7", "--parts", "2", "--out", parts)
    bench = [str(program()), "bench", "distributed", "--graph", f"shards:{parts}", "--ranks", "2"]
    (tmp_path / "parts" / "part-0001.safetensors").unlink()
    assert "part-0001.safetensors" in fails(*bench)
    assert "mask 'causal': is not made of walks" in fails(*bench[:4], "grid:4x4", "--ranks", "2", "--mask", "causal")
    late = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    errors = fails(*bench[:4], "grid:4x4", "--time-limit", "1", **late)
    assert errors == (
        "topomask: rank 1 of 2: nobody answered at 127.0.0.1:9 within 1 s; is rank 0 running there?\n"
    )


@pytest.mark.parametrize("flags", [[], ["--edge-index"]])
def test_training_on_ranks_is_that_of_one_process(flags: list[str]) -> None:
    one = run(sys.executable, str(EXAMPLE), "--steps", "8", *flags)
    two = run(*TORCHRUN, "--nproc-per-node", "2", str(EXAMPLE), "--steps", "8", *flags)
    assert one.startswith("1 ranks: loss ") and two == one.replace("1 ranks", "2 ranks")


def test_one_process_needs_no_group() -> None:
    graph = topomask.Graph.grid(5, 4)
    whole = topomask.distributed.DistributedGraph.from_graph(graph, torch.zeros(20, dtype=torch.int32))
    f = torch.tensor([1.0, 0.5, 0.25], requires_grad=True)
    mask = topomask.distributed.GRFMask(whole.normalised(), f, num_walks=4, max_hops=2, seed=3)
    q, k, v = torch.rand(3, 1, 2, 20, 4).unbind()
    expected = topomask.attention(
        q, k, v, topomask.GRFMask(graph, num_walks=4, max_hops=2, seed=3, init=f.detach())
    )
    out = topomask.distributed.attention(q, k, v, mask)
    torch.testing.assert_close(out, expected)
    out.sum().backward()
    assert f.grad is not None and f.grad.shape == f.shape
    plain = topomask.distributed.attention(q, k, v)
    torch.testing.assert_close(plain, topomask.attention(q, k, v))
    assert torch.equal(whole.nodes, torch.arange(20)) and whole.halo_rows(torch.rand(20, 1)).shape == (0, 1)
