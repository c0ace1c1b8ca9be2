"""Models that the command line trained, in Python."""

import json
import subprocess
from pathlib import Path

import pytest
import topomask
import torch
from topomask._ops import ops, program

VARIANTS = (
    "softmax", "softmax+grf", "softmax+grf-bias", "linear", "performer", "performer+grf", "toeplitz", "power-series",
    "grf", "grf-asymmetric", "ad-hoc", "learned-features", "neighbours",
)  # fmt: skip

safetensors = pytest.importorskip("safetensors.torch")
TINY = [
    "--layers", "2", "--embedding", "12", "--heads", "2", "--mlp", "20", "--walks", "4", "--p-halt", "0.3", "--max-hops",
    "3", "--epochs", "1", "--batch", "16", "--warmup-epochs", "0", "--learning-rate", "0.03", "--quiet", "--threads", "1",
]  # fmt: skip


def train(folder: Path, *flags: str, kind: str = "vit") -> None:
    done = subprocess.run(
        [program(), "train", kind, "--out", folder, *TINY, *flags], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("flags", [
    *([variant] for variant in VARIANTS),
    ["grf", "--pooling", "cls"],
    ["linear", "--pooling", "cls"],
    ["grf", "--share-walks", "--coupling", "both", "--seed", "7"],
    ["grf", "--ensembles", "independent", "--no-absolute"],
    ["grf", "--key-f", "--patch-graph", "diagonals"],
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


@pytest.mark.parametrize("encoder", ["factorised", "joint"])
def test_clips(tmp_path: Path, encoder: str) -> None:
    clips = ["--data", "motion:12,frames=4,train=16,val=8", "--patch", "4", "--attention", "grf", "--encoder", encoder]
    train(tmp_path, *clips, kind="vivit")
    model = topomask.nn.VisionTransformer.from_checkpoint(tmp_path / "last.safetensors")
    examples = safetensors.load_file(tmp_path / "examples.safetensors")
    with torch.no_grad():
        got = model(model.normalise(examples["images"])).softmax(-1)
    torch.testing.assert_close(got, examples["probabilities"], rtol=1e-4, atol=1e-5)


SMALL = {"channels": 1, "dim": 8, "depth": 2, "heads": 2, "mlp": 8, "classes": 3, "initial_weights": "fan-in"}


@pytest.mark.parametrize("attention", ["grf", "learned-features", "toeplitz"])
def test_gradients_and_tracing(attention: str) -> None:
    model = topomask.nn.VisionTransformer(8, 4, attention=attention, pooling="cls", **SMALL).double()
    images = torch.randn(2, 1, 8, 8, dtype=torch.float64)
    weights = [model.get_parameter(name) for name in model._call[2]]
    torch.library.opcheck(ops.run_library_module.default, (*model._call, [*weights, images, images.new_empty(0)]))
    ahead = torch.randn(2, 3, dtype=torch.float64)
    gradients = torch.autograd.grad((model(images) * ahead).sum(), weights)
    with torch.no_grad():
        for weight, gradient in zip(weights, gradients):
            step = 1e-6 * torch.randn_like(weight)
            weight += step
            above = (model(images) * ahead).sum()
            weight -= 2 * step
            difference = above - (model(images) * ahead).sum()
            weight += step
            torch.testing.assert_close(difference, 2 * (gradient * step).sum(), rtol=1e-4, atol=1e-12)


def test_dropout_is_drawn_anew_and_repeated_by_its_backward_pass() -> None:
    model = topomask.nn.VisionTransformer(8, 4, dropout=0.5, **SMALL)
    images = torch.randn(2, 1, 8, 8)
    torch.manual_seed(3)
    first, second = model(images), model(images)
    torch.manual_seed(3)
    assert torch.equal(model(images), first) and not torch.equal(first, second)
    assert torch.equal(model.eval()(images), model(images))
    model.train()
    compiled = torch.compile(model, fullgraph=True, backend="aot_eager")
    gradients = []
    for run in (model, compiled):
        torch.manual_seed(4)
        gradients.append(torch.autograd.grad(run(images).square().sum(), list(model.parameters())))
    for ours, theirs in zip(*gradients):
        torch.testing.assert_close(ours, theirs)


def test_models_of_equal_settings_share_no_weights() -> None:
    """The library keeps one module for both: graphs of one must not see the weights of the other."""
    one, two = (topomask.nn.VisionTransformer(8, 4, **SMALL) for _ in range(2))
    with torch.no_grad():
        two.load_state_dict({name: tensor + 1 for name, tensor in two.state_dict().items()})
    images = torch.randn(2, 1, 8, 8)
    alone = torch.autograd.grad(one(images).square().sum(), list(one.parameters()))
    out = one(images).square().sum()
    two(images)
    for ours, theirs in zip(torch.autograd.grad(out, list(one.parameters())), alone):
        assert torch.equal(ours, theirs)


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
    with pytest.raises(ValueError, match="expected class_names for 3 classes, or none, got 2"):
        topomask.nn.VisionTransformer(32, 4, classes=3, class_names=["a", "b"])
    with pytest.raises(ValueError, match="attention: unknown value 'gfr'"):
        topomask.nn.VisionTransformer(32, 4, attention="gfr")
    model = topomask.nn.VisionTransformer((8, 16), 4, channels=1, dim=8, depth=1, heads=2, mlp=8)
    assert model(torch.randn(3, 1, 8, 16)).shape == (3, 10)
    with pytest.raises(ValueError, match="images must be \\[B, 1, 8, 16\\], got \\[3, 1, 16, 8\\]"):
        model(torch.randn(3, 1, 16, 8))


def test_any_tensors_may_stand_in_for_the_weights() -> None:
    model = topomask.nn.VisionTransformer(8, 4, dim=12, depth=1, heads=2, mlp=16, classes=3, attention="grf", num_walks=4)
    torch.nn.init.normal_(model.head.weight)
    images, weights = torch.randn(2, 3, 8, 8), {k: 1.1 * v for k, v in model.state_dict().items()}
    expected = torch.func.functional_call(model, {k: torch.nn.Parameter(v) for k, v in weights.items()}, (images,))
    assert torch.equal(torch.func.functional_call(model, weights, (images,)), expected)
    assert not torch.allclose(model(images), expected)
    with pytest.raises(ValueError, match="expected floating-point numbers"):
        model((images * 255).byte())
    with pytest.raises(ValueError, match="the input is Double and the weights are Float"):
        model(images.double())
    with pytest.raises(ValueError, match="image_size cannot be"):
        topomask.nn.VisionTransformer((8, 8, 8), 4)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="image_size cannot be"):
        topomask.nn.VisionTransformer((8.5, 8), 4)  # type: ignore[arg-type]
    for name in ("mask_every", "max_hops", "neighbour_hops"):  # 32 bits
        with pytest.raises(ValueError, match=f"{name} cannot be 4294967297"):
            topomask.nn.VisionTransformer(8, 4, **{name: 2**32 + 1})
    with pytest.raises(ValueError, match="dropout: expected a finite number, got nan"):
        topomask.nn.VisionTransformer(8, 4, dropout=float("nan"))
