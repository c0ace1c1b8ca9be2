"""Several processes against one: the program with --ranks and under torchrun, the package under torchrun."""

import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import topomask
import torch
from topomask._ops import program

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
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


def children_of(process: subprocess.Popen[str], count: int) -> list[int]:
    """The ranks that a program has started, once there are so many."""
    for _ in range(600):
        found = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        if len(found) == count:
            return [int(child) for child in found]
        time.sleep(0.05)
    raise AssertionError("the ranks did not start")


def start(*command: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**ONE_THREAD, **environment}
    )


BENCH = [str(program()), "bench", "distributed", "--graph"]


def test_the_survivors_of_a_killed_rank_say_so() -> None:
    running = start(*BENCH, "grid:30x30", "--ranks", "3", "--repeats", "1000000")
    children = children_of(running, 3)
    time.sleep(3)
    os.kill(children[1], signal.SIGKILL)
    _, errors = running.communicate(timeout=100)
    assert running.returncode != 0
    assert "rank 1 was killed by signal 9" in errors
    for rank in (0, 2):
        assert f"rank {rank} of 3: the exchange of" in errors
    assert len(errors.strip().splitlines()) == 3, errors


def test_a_rank_that_hangs_is_ended() -> None:
    running = start(*BENCH, "grid:30x30", "--ranks", "2", "--repeats", "1000000", "--time-limit", "2")
    children = children_of(running, 2)
    time.sleep(2.5)
    os.kill(children[1], signal.SIGSTOP)
    begin = time.monotonic()
    _, errors = running.communicate(timeout=60)
    assert time.monotonic() - begin < 20
    assert running.returncode != 0
    assert "rank 0 of 2: the exchange of" in errors and "within 2 s" in errors
    assert "rank 1 did not end within 7 s of that, and was stopped" in errors
    assert not Path(f"/proc/{children[1]}").exists()


def test_no_rank_outlives_the_program(tmp_path: Path) -> None:
    running = start(*BENCH, "grid:30x30", "--ranks", "2", "--repeats", "1000000", TMPDIR=str(tmp_path))
    children = children_of(running, 2)
    time.sleep(1)
    running.kill()
    running.communicate(timeout=60)
    for _ in range(100):
        if not any(Path(f"/proc/{child}").exists() for child in children):
            assert not list(tmp_path.iterdir())  # and nothing is left
            return
        time.sleep(0.1)
    raise AssertionError("a rank is left")


def test_results_appear_whole_or_not_at_all(tmp_path: Path) -> None:
    operands = []
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(ord(name)).random((1, 2, 6400, 16), np.float32))
        operands += [f"--{name}", str(tmp_path / f"{name}.npy")]
    out = tmp_path / "out.npy"
    attend = [str(program()), "attend", "--graph", "grid:80x80", *operands, "--out", str(out), "--ranks", "3"]
    run(*attend)
    whole = np.load(out)
    moments = np.random.default_rng(0)
    killed = 0
    for moment in moments.uniform(0.02, 1.5, 5):
        out.unlink(missing_ok=True)
        running = start(*attend, "--time-limit", "20")
        children = children_of(running, 3)
        time.sleep(moment)
        try:
            os.kill(children[moments.integers(3)], signal.SIGKILL)
        except ProcessLookupError:
            pass
        _, errors = running.communicate(timeout=60)
        killed += running.returncode != 0
        assert running.returncode == 0 or "was killed by signal 9" in errors
        assert running.returncode != 0 or out.exists()
        if out.exists():
            np.testing.assert_array_equal(np.load(out), whole)
        assert not list(tmp_path.glob("*.tmp")) or running.returncode != 0
    assert killed > 0


def by_hand(rank: int, size: int, port: int) -> dict[str, str]:
    """What torchrun would set."""
    return {"RANK": str(rank), "WORLD_SIZE": str(size), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}


def free_port() -> int:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        return taken.getsockname()[1]


def test_ranks_that_disagree_on_their_number() -> None:
    port = free_port()
    bench = [*BENCH, "grid:4x4", "--time-limit", "10"]
    ranks = [start(*bench, **by_hand(0, 2, port)), start(*bench, **by_hand(1, 3, port))]
    errors = [rank.communicate(timeout=60)[1] for rank in ranks]
    assert [rank.returncode for rank in ranks] == [2, 2]
    assert errors[0] == (
        "topomask: rank 0 of 2: rank 1 was told that there are 3 ranks; WORLD_SIZE must agree\n"
    )
    assert errors[1].startswith("topomask: rank 1 of 3: ") and len(errors[1].splitlines()) == 1


def test_a_port_in_use_and_a_peer_that_never_comes() -> None:
    bench = [*BENCH, "grid:4x4", "--time-limit", "1"]
    with socket.socket() as taken:
        taken.bind(("0.0.0.0", 0))
        taken.listen()
        port = taken.getsockname()[1]
        errors = fails(*bench, **by_hand(0, 2, port))
        assert errors.startswith(f"topomask: rank 0 of 2: could not listen on port {port}; is it in use?")
        assert errors.endswith("choose another MASTER_PORT\n") and len(errors.splitlines()) == 1
    errors = fails(*bench, **by_hand(0, 3, free_port()))
    assert errors == "topomask: rank 0 of 3: rank 1, 2 did not come within 1 s\n"


def test_shards_of_another_partition(tmp_path: Path) -> None:
    for name, method in (("a", "metis"), ("b", "morton")):
        run(str(program()), "partition", "--graph", "grid:9x7", "--parts", "2", "--method", method, "--out",
            str(tmp_path / name))  # fmt: skip
    (tmp_path / "b" / "part-0001.safetensors").replace(tmp_path / "a" / "part-0001.safetensors")
    errors = fails(*BENCH, f"shards:{tmp_path / 'a'}", "--ranks", "2")
    assert "part-0001.safetensors: belongs to another partition" in errors
    assert len(errors.splitlines()) == 2  # one for each rank
    port = free_port()
    ranks = [
        start(*BENCH, f"shards:{tmp_path / folder}", "--time-limit", "20", **by_hand(rank, 2, port))
        for rank, folder in enumerate("ab")
    ]
    for rank in ranks:
        _, errors = rank.communicate(timeout=60)
        assert rank.returncode == 2 and len(errors.splitlines()) == 1, errors


def test_mistakes_are_one_sentence(tmp_path: Path) -> None:
    parts = str(tmp_path / "parts")
    run(str(program()), "partition", "--graph", "grid:9x7", "--parts", "2", "--out", parts)
    bench = [str(program()), "bench", "distributed", "--graph", f"shards:{parts}", "--ranks", "2"]
    errors = fails(*bench, "--walks", "0")  # found by every rank, said once
    assert errors.startswith("topomask: --walks must be between 1 and") and len(errors.splitlines()) == 1, errors
    (tmp_path / "parts" / "part-0001.safetensors").unlink()
    assert "part-0001.safetensors" in fails(*bench)
    assert "mask 'causal': is not made of walks" in fails(*bench[:4], "grid:4x4", "--ranks", "2", "--mask", "causal")
    late = {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "9"}
    errors = fails(*bench[:4], "grid:4x4", "--time-limit", "1", **late)
    assert errors == (
        "topomask: rank 1 of 2: nobody answered at 127.0.0.1:9 within 1 s; is rank 0 running there?\n"
    )


@pytest.mark.parametrize(
    "command",
    [
        ["distributed_node_classifier.py", "--steps", "8"],
        ["distributed_node_classifier.py", "--steps", "8", "--edge-index"],
        ["distributed_edge_index.py", "--epochs", "8"],
    ],
)
def test_training_on_ranks_is_that_of_one_process(command: list[str]) -> None:
    example, arguments = str(EXAMPLES / command[0]), command[1:]
    one = run(sys.executable, example, *arguments)
    two = run(*TORCHRUN, "--nproc-per-node", "2", example, *arguments)
    assert one.startswith("1 ranks: loss ") and two == one.replace("1 ranks", "2 ranks")


def test_no_thread_of_a_group_outlives_it(tmp_path: Path) -> None:
    """With an optimiser, torch keeps the group if its functions are imported under it: Gloo may then abort the exit."""
    script = tmp_path / "script.py"
    script.write_text(
        "import topomask, torch\n"
        "from pathlib import Path\n"
        "names = lambda: [x.read_text().strip() for x in Path('/proc/self/task').glob('*/comm')]\n"
        "torch.distributed.init_process_group('gloo')\n"
        "torch.optim.Adam([torch.nn.Parameter(torch.ones(1))])\n"
        "before = any('gloo' in name for name in names())\n"
        "torch.distributed.destroy_process_group()\n"
        "print(before, any('gloo' in name for name in names()))\n"
    )
    assert run(*TORCHRUN, "--nproc-per-node", "1", str(script)) == "True False\n"


def test_the_example_needs_no_pyg(tmp_path: Path) -> None:
    (tmp_path / "torch_geometric.py").write_text("raise ImportError\n")
    environment = {**ONE_THREAD, "PYTHONPATH": f"{tmp_path}:{os.environ.get('PYTHONPATH', '')}"}
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "distributed_edge_index.py"), "--epochs", "2"], capture_output=True, text=True,
        check=False, env=environment,
    )  # fmt: skip
    assert done.returncode == 0 and done.stdout.startswith("1 ranks: loss "), done.stderr


@pytest.mark.parametrize("ranks", [1, 2])
def test_each_head_may_have_its_own_walks(tmp_path: Path, ranks: int) -> None:
    from safetensors.numpy import save_file

    save_file({"f": np.random.default_rng(0).random((2, 4))}, tmp_path / "mask.safetensors")
    operands = ["--parameters", str(tmp_path / "mask.safetensors"), "--shared-walks", "false"]
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(ord(name)).random((1, 2, 63, 8)))
        operands += [f"--{name}", str(tmp_path / f"{name}.npy")]
    attend = [str(program()), "attend", "--graph", "grid:9x7", *operands, "--seed", "3", "--out"]
    run(*attend, str(tmp_path / "one.npy"))
    run(*attend, str(tmp_path / "many.npy"), "--ranks", str(ranks))
    np.testing.assert_allclose(np.load(tmp_path / "one.npy"), np.load(tmp_path / "many.npy"), rtol=0, atol=1e-12)


def test_keys_may_have_an_f_of_their_own(tmp_path: Path) -> None:
    operands = ["--f", "1,0.5,0.25", "--key-init", "1,0.1,0.3", "--max-hops", "2", "--walks", "8"]
    for name in "qkv":
        np.save(tmp_path / f"{name}.npy", np.random.default_rng(ord(name)).random((63, 8)))
        operands += [f"--{name}", str(tmp_path / f"{name}.npy")]
    attend = [str(program()), "attend", "--graph", "grid:9x7", *operands, "--seed", "3", "--out"]
    run(*attend, str(tmp_path / "one.npy"))
    run(*attend, str(tmp_path / "many.npy"), "--ranks", "2")
    np.testing.assert_allclose(np.load(tmp_path / "one.npy"), np.load(tmp_path / "many.npy"), rtol=0, atol=1e-12)


def test_arrays_that_cannot_be_mapped_are_read(tmp_path: Path) -> None:
    """Ranks map q, k and v and take their rows. Fortran order is read whole; what is broken is said on every rank."""
    operands = []
    for name in "qkv":
        array = np.random.default_rng(ord(name)).random((63, 8))
        np.save(tmp_path / f"{name}.npy", np.asfortranarray(array) if name == "k" else array)
        operands += [f"--{name}", str(tmp_path / f"{name}.npy")]
    attend = [str(program()), "attend", "--graph", "grid:9x7", *operands, "--out", str(tmp_path / "o.npy")]
    run(*attend)
    one = np.load(tmp_path / "o.npy")
    run(*attend, "--ranks", "2")
    np.testing.assert_allclose(one, np.load(tmp_path / "o.npy"), rtol=0, atol=1e-12)
    whole = (tmp_path / "v.npy").read_bytes()
    for broken, message in ((whole[:-8], "does not match"), (b"", "expected a .npy array"), (b"no array", "expected a .npy array")):
        (tmp_path / "v.npy").write_bytes(broken)
        assert message in fails(*attend, "--ranks", "2")


@pytest.mark.parametrize("number", ["0", "-1", "257"])
def test_ranks_are_counted_from_one(number: str) -> None:
    for command in ([*BENCH, "grid:4x4"], [str(program()), "train", "vit"], [str(program()), "train", "particles"]):
        assert f"--ranks: expected 1 to 256, got {number}" in fails(*command, "--ranks", number)


def test_plan_predicts_memory_and_bytes() -> None:
    options = ["--walks", "8", "--max-hops", "4", "--ranks", "2", "--heads", "1", "--json", "--graph"]
    bench = [str(program()), "bench", "distributed", "--channels", "32", "--repeats", "2", "--threads", "1"]
    found, tiny = (json.loads(run(*bench, *options, graph)) for graph in ("grid:400x400", "grid:10x10"))
    plan = json.loads(run(str(program()), "plan", "--m", "32", "--d", "32", *options, "grid:400x400"))
    assert plan["engine"] == found["engine"] == "mask" and not plan["scaled"]
    assert 2 * plan["bytes_forward"]["mean"] == found["bytes_sent"]
    assert plan["largest"]["mask_halo"] == max(part["halo"] for part in found["parts"])
    # What the program itself takes depends on the torch that it was built with.
    memory, without_data = (max(part["peak_memory"] for part in case["parts"]) for case in (found, tiny))
    data = plan["memory"]["total"] - plan["memory"]["program"]
    assert 1 / 1.3 < data / (memory - without_data) < 1.3, (memory, without_data, plan["memory"])
    text = topomask.distributed.plan("grid:20x20", 2, num_walks=8, max_hops=4, m=32, d=32)
    assert "sent per forward" in text and "memory, largest rank" in text
    with pytest.raises(ValueError, match="unknown value 'h2000'"):
        topomask.distributed.plan("grid:20x20", 2, device="h2000")
    with pytest.raises(ValueError, match="ranks must be from 1"):
        topomask.distributed.plan("grid:20x20", 0)


def test_partition_writes_shards(tmp_path: Path) -> None:
    graph = topomask.Graph.grid(9, 7)
    assignment = topomask.distributed.partition(graph, 3, folder=str(tmp_path / "parts"))
    assert assignment.dtype == torch.int32 and assignment.unique().tolist() == [0, 1, 2]
    again = topomask.Graph.load(f"shards:{tmp_path / 'parts'}")
    assert torch.equal(again.col, graph.col)
    assert topomask.distributed.partition(graph).unique().tolist() == [0]  # as many parts as ranks
    with pytest.raises(ValueError, match="holds a partition"):
        topomask.distributed.partition(graph, 3, folder=str(tmp_path / "parts"))


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
    f2 = torch.tensor([[1.0, 0.5, 0.25], [1.0, -0.5, 0.1]])
    one = topomask.GRFMask(graph, num_walks=4, max_hops=2, seed=3, heads=2, shared_walks=False, init=f2)
    mask = topomask.distributed.GRFMask(
        whole.normalised(), f2, num_walks=4, max_hops=2, seed=3, shared_walks=False
    )
    torch.testing.assert_close(topomask.distributed.attention(q, k, v, mask), topomask.attention(q, k, v, one))
    mask.f = f2[:1]
    with pytest.raises(ValueError, match="walks for 2 heads, got f with 1 rows"):
        topomask.distributed.attention(q, k, v, mask)
    mask.f = f2.to("meta")
    with pytest.raises(ValueError, match="on the CPU or on a GPU, got .* on meta"):
        topomask.distributed.attention(q, k, v, mask)
    plain = topomask.distributed.attention(q, k, v)
    torch.testing.assert_close(plain, topomask.attention(q, k, v))
    assert torch.equal(whole.nodes, torch.arange(20)) and whole.halo_rows(torch.rand(20, 1)).shape == (0, 1)
