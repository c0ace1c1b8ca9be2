"""Models that the command line trained, in Python."""

import json
import subprocess
from pathlib import Path

import pytest
import topomask
import torch
from topomask._load import program

VARIANTS = (
    "softmax", "softmax+grf", "linear", "toeplitz", "power-series", "grf", "grf-asymmetric", "ad-hoc",
    "learned-features", "neighbours",
)  # fmt: skip

safetensors = pytest.importorskip("safetensors.torch")
TINY = [
    "--layers", "2", "--embedding", "12", "--heads", "2", "--mlp", "20", "--walks", "4", "--p-halt", "0.3", "--max-hops",
    "3", "--epochs", "1", "--batch", "16", "--warmup-epochs", "0", "--learning-rate", "0.03", "--quiet", "--threads", "1",
]  # fmt: skip


def train(folder: Path, *flags: str) -> None:
    done = subprocess.run(
        [program(), "train", "vit", "--out", folder, *TINY, *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("flags", [
    *([variant] for variant in VARIANTS),
    ["grf", "--pooling", "cls"],
    ["linear", "--pooling", "cls"],
    ["grf", "--share-walks", "--coupling", "both", "--seed", "7"],
    ["grf", "--ensembles", "independent", "--no-absolute"],
    ["toeplitz", "--no-absolute"],
], ids=" ".join)  # fmt: skip
def test_checkpoints_give_the_same_predictions(tmp_path: Path, flags: list[str]) -> None:
    train(tmp_path, "--data", "strokes:16,train=64,val=32", "--attention", *flags)
    model = topomask.nn.VisionTransformer.from_checkpoint(tmp_path / "last.safetensors")
    examples = safetensors.load_file(tmp_path / "examples.safetensors")
    with torch.no_grad():
        got = model(model.normalise(examples["images"])).softmax(-1)
    torch.testing.assert_close(got, examples["probabilities"], rtol=1e-4, atol=1e-5)
    assert got.std(0).max() > 1e-3  # the images are told apart, so that agreement means something
    stored = safetensors.load_file(tmp_path / "best.safetensors")
    state = model.state_dict()
    assert set(state) == set(stored)
    again = topomask.nn.VisionTransformer.from_checkpoint(tmp_path / "best.safetensors")
    assert all(torch.equal(tensor, stored[name]) for name, tensor in again.state_dict().items())


def test_averaged_weights_are_taken(tmp_path: Path) -> None:
    train(tmp_path, "--data", "strokes:16,train=64,val=32", "--attention", "linear", "--ema", "0.9")
    model = topomask.nn.VisionTransformer.from_checkpoint(tmp_path / "last.safetensors")
    stored = safetensors.load_file(tmp_path / "last.safetensors")
    assert not torch.equal(stored["norm.weight"], stored["ema.norm.weight"])
    assert all(torch.equal(tensor, stored[f"ema.{name}"]) for name, tensor in model.state_dict().items())


def test_a_model_of_python_is_evaluated_by_the_program(tmp_path: Path) -> None:
    train(tmp_path, "--data", "strokes:16,train=64,val=32", "--attention", "grf")
    path = tmp_path / "best.safetensors"
    model = topomask.nn.VisionTransformer.from_checkpoint(path)
    with torch.no_grad():
        model.head.bias[0] += 100  # says class 0 to everything
    with safetensors.safe_open(path, "pt") as file:
        metadata = file.metadata()
    safetensors.save_file(model.state_dict(), tmp_path / "changed.safetensors", metadata)
    done = subprocess.run(
        [program(), "eval", "--checkpoint", tmp_path / "changed.safetensors", "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["loss"] > 20


def test_errors(tmp_path: Path) -> None:
    safetensors.save_file({"a": torch.ones(1)}, tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="not a checkpoint of 'topomask train' \\(its metadata has no 'config'\\)"):
        topomask.nn.VisionTransformer.from_checkpoint(tmp_path / "a.safetensors")
    with pytest.raises(ValueError, match="patch 3 does not divide images of 32x32"):
        topomask.nn.VisionTransformer(32, 3)
    with pytest.raises(ValueError, match="attention: unknown value 'gfr'"):
        topomask.nn.VisionTransformer(32, 4, attention="gfr")
    model = topomask.nn.VisionTransformer((8, 16), 4, channels=1, dim=8, depth=1, heads=2, mlp=8)
    assert model(torch.randn(3, 1, 8, 16)).shape == (3, 10)
    with pytest.raises(ValueError, match="images must be \\[B, 1, 8, 16\\], got \\[3, 1, 16, 8\\]"):
        model(torch.randn(3, 1, 16, 8))
