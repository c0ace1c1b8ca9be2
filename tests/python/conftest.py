import os
import subprocess
import sys
import tempfile


def _bfloat16_products_crash() -> bool:
    """Some virtual machines report matrix units (AMX) that they do not have; torch's products then die."""
    probe = "import torch; x = torch.ones(2, 34, 32).bfloat16(); torch.nn.functional.linear(x, x[0, :32])"
    return subprocess.run([sys.executable, "-c", probe], capture_output=True).returncode < 0


if sys.platform == "linux" and "amx_tile" in open("/proc/cpuinfo").read() and _bfloat16_products_crash():
    os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # before torch is imported

# Not the user's cache: what an earlier state of the operators left there looks the same to torch.
_compiled = tempfile.TemporaryDirectory(prefix="topomask-inductor-")
os.environ.setdefault("TORCHINDUCTOR_CACHE_DIR", _compiled.name)

import pytest
import topomask
import torch


@pytest.fixture(autouse=True)
def fixed_seed() -> None:
    torch.manual_seed(0)
    torch._dynamo.reset()  # else tests that compile the same function share one limit of recompilations


@pytest.fixture
def karate() -> topomask.Graph:
    return topomask.Graph.load("karate")


@pytest.fixture
def one_way() -> topomask.Graph:
    """A small directed graph with weights of both signs, a self-loop and an isolated node."""
    edges = torch.tensor([[0, 1, 2, 3, 0, 4, 2], [1, 2, 0, 4, 3, 4, 5]])
    weights = torch.tensor([1.0, -2.0, 0.5, 1.5, 1.0, 2.0, -1.0])
    return topomask.Graph.from_edge_index(edges, 7, weights, flow="target_to_source")
