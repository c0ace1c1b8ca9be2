"""Interlacer, U-Net and HD-VPD against the same in plain PyTorch, on the same weights."""

import json
import math
import subprocess
from pathlib import Path

import pytest
import topomask
import torch
import torch.nn.functional as F
from topomask._ops import ops, program
from topomask.nn import HDVPD, Interlacer
from torch import Tensor

STATES = Path(__file__).resolve().parents[1] / "robot" / "states"
LOCALS = ("grf", "mp", "none", "softmax")
SMALL = {"width": 16, "layers": 2, "heads": 2, "mlp": 24, "bands": 3, "anchor_every": 4, "anchor_neighbours": 6}


def octaves(x: Tensor, bands: int) -> Tensor:
    angles = (x.unsqueeze(-1) * (math.pi * 2.0 ** torch.arange(bands))).flatten(-2)
    return torch.cat([x, angles.sin(), angles.cos()], -1)


class Plain:
    """The Interlacer of one cloud, with dense matrices and loops where the library has kernels."""

    def __init__(self, weights: dict[str, Tensor], local: str, heads: int, bands: int) -> None:
        self.w, self.local, self.heads, self.bands = weights, local, heads, bands

    def linear(self, name: str, x: Tensor) -> Tensor:
        return F.linear(x, self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def two(self, name: str, x: Tensor, first: str = "1", second: str = "2") -> Tensor:
        return self.linear(name + second, F.gelu(self.linear(name + first, x)))

    def norm(self, name: str, x: Tensor) -> Tensor:
        return F.layer_norm(x, x.shape[-1:], self.w[f"{name}.weight"], self.w[f"{name}.bias"])

    def attend(self, name: str, x: Tensor, heads: int, mask: Tensor, softmax: bool = False) -> Tensor:
        q, k, v = self.linear(f"{name}.qkv", x).view(len(x), 3, heads, -1).permute(1, 2, 0, 3)
        if softmax:
            scores = (q @ k.transpose(1, 2) / math.sqrt(q.shape[-1])).exp() * mask
        else:
            scale = q.shape[-1] ** -0.25
            scores = (F.relu(q * scale) + 1e-3) @ (F.relu(k * scale) + 1e-3).transpose(1, 2) * mask
        out = (scores / scores.sum(-1, keepdim=True)) @ v
        return self.linear(f"{name}.projection", out.transpose(0, 1).flatten(1))

    def messages(self, name: str, x: Tensor, places: Tensor) -> Tensor:
        def offsets(d: Tensor) -> Tensor:
            return 20 * torch.cat([d, d.norm(dim=-1, keepdim=True)], -1)

        anchors = torch.arange(0, len(x), SMALL["anchor_every"])
        heard = torch.cdist(places[anchors], places).topk(SMALL["anchor_neighbours"], largest=False).indices
        own = x[anchors].unsqueeze(1).expand(-1, heard.shape[1], -1)
        edges = torch.cat([own, x[heard], offsets(places[heard] - places[anchors].unsqueeze(1))], -1)
        message = self.two(f"{name}.edge", edges).mean(1)
        told = x[anchors] + self.two(f"{name}.node", torch.cat([x[anchors], message], -1))
        nearest = torch.cdist(places, places[anchors]).argmin(-1)
        return self.two(f"{name}.back", torch.cat([x, told[nearest], offsets(places[anchors][nearest] - places)], -1))

    def mask(self, layer: int, places: Tensor) -> Tensor:
        distance = torch.cdist(places, places).fill_diagonal_(math.inf)
        near = distance.topk(3, largest=False).indices
        step = torch.zeros_like(distance).scatter_(1, near, 1.0)
        if self.local == "softmax":
            return step + torch.eye(len(places))
        f = self.w[f"local_blocks.{layer}.attention.mask.f"].abs()[0]
        return sum(f[k] * torch.linalg.matrix_power(step / 3, k) for k in range(4))

    def __call__(self, x: Tensor, f: Tensor, past: tuple[Tensor, Tensor], robot: tuple[Tensor, Tensor]) -> Tensor:
        kinds = self.w["kind_embedding"]
        points, grips = robot
        d = points.diff(dim=0)
        shifts = torch.cat([torch.stack([d[0], d[0], d[1]]), torch.stack([d[0], d[1], d[1]]), grips.unsqueeze(-1)], -1)
        h = torch.cat([
            self.two("visual", torch.cat([f, octaves(x, self.bands)], -1)) + kinds[0],
            self.two("visual", torch.cat([past[1], octaves(past[0], self.bands)], -1)) + kinds[1],
            (self.two("robot", torch.cat([10 * shifts, octaves(points, self.bands)], -1)) + kinds[2:].unsqueeze(1)).flatten(0, 1),
        ])  # fmt: skip
        places = torch.cat([x, past[0], points.flatten(0, 1)])
        ones = torch.ones(len(h), len(h))
        for layer in range(SMALL["layers"]):
            for kind in ("global", "local"):
                name = f"{kind}_blocks.{layer}"
                own = self.norm(f"{name}.norm1", h)
                if kind == "global" or self.local == "none":
                    out = self.attend(f"{name}.attention", own, self.heads, ones)
                elif self.local == "mp":
                    out = self.messages(f"{name}.messages", own, places)
                elif self.local == "grf":
                    out = self.attend(f"{name}.attention", own, 1, self.mask(layer, places))
                else:
                    out = self.attend(f"{name}.attention", own, self.heads, self.mask(layer, places), softmax=True)
                h = h + out
                h = h + self.two(f"{name}.mlp.fc", self.norm(f"{name}.norm2", h))
        out = self.linear("head", self.norm("norm", h[: len(x)]))
        return torch.cat([0.25 * torch.tanh(out[:, :3]), out[:, 3:]], -1)


def awake(local: str) -> Interlacer:
    model = Interlacer(4, local=local, seed=3, **SMALL)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.startswith("head") or name.endswith("mask.f"):  # 0 and hardly decaying at the start
                parameter.copy_(torch.randn_like(parameter))
    return model


def scene() -> tuple[Tensor, Tensor, tuple[Tensor, Tensor], tuple[Tensor, Tensor]]:
    past = (0.3 * torch.randn(2, 9, 3), torch.randn(2, 9, 4))
    return (
        0.3 * torch.randn(2, 40, 3),
        torch.randn(2, 40, 4),
        past,
        (0.3 * torch.randn(2, 3, 5, 3), 0.04 * torch.rand(2, 3, 5)),
    )


@pytest.mark.parametrize("local", LOCALS)
def test_interlacer_agrees_with_plain_torch(local: str) -> None:
    model = awake(local)
    x, f, past, robot = scene()
    got = torch.cat(model(x, f, past, robot), -1)
    plain = Plain(dict(model.named_parameters()), local, SMALL["heads"], SMALL["bands"])
    expected = torch.stack([plain(x[b], f[b], (past[0][b], past[1][b]), (robot[0][b], robot[1][b])) for b in range(2)])
    torch.testing.assert_close(got, expected, rtol=1e-5, atol=1e-5)
    assert got[..., :3].std() > 0.01
    ahead = torch.randn_like(got)
    ours = torch.autograd.grad((got * ahead).sum(), list(model.parameters()))
    theirs = torch.autograd.grad((expected * ahead).sum(), list(model.parameters()))
    for a, b in zip(ours, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-3, atol=1e-4 * max(1.0, float(b.abs().max())))


def test_cloud_alone_and_start() -> None:
    moves, changes = Interlacer(4, **SMALL)(torch.randn(1, 30, 3), torch.randn(1, 30, 4))
    assert moves.shape == (1, 30, 3) and changes.shape == (1, 30, 4)
    assert not moves.any() and not changes.any()  # 0 before training


@pytest.mark.parametrize("local", LOCALS)
def test_empty_batches_and_float16(local: str) -> None:
    model = awake(local)
    moves, changes = model(torch.randn(0, 30, 3), torch.randn(0, 30, 4, requires_grad=True))
    assert moves.shape == (0, 30, 3) and changes.shape == (0, 30, 4)
    changes.sum().backward()
    with pytest.raises(ValueError, match="float64, bfloat16 or, on a GPU, float16, got Half on cpu"):
        model.half()(torch.randn(1, 30, 3).half(), torch.randn(1, 30, 4).half())


def test_operator_and_compilation() -> None:
    model = awake("grf").double()
    x, f, past, robot = scene()
    inputs = [tensor.double() for tensor in (x, f, *past, *robot)]
    kind, settings, names = model._call
    # With past and robot every weight matters: eager mode has no gradient where AOT has zeros.
    arguments = (kind, settings, names, [*(model.get_parameter(n) for n in names), *inputs])
    torch.library.opcheck(ops.run_library_module.default, arguments)
    eager = model(*inputs[:2])[0]
    torch.testing.assert_close(torch.compile(model, backend="aot_eager")(*inputs[:2])[0], eager)


def test_state_dict_round_trip() -> None:
    one, two = awake("mp"), Interlacer(4, local="mp", **SMALL)
    two.load_state_dict(one.state_dict())
    x, f, past, robot = scene()
    assert torch.equal(one(x, f, past, robot)[0], two(x, f, past, robot)[0])


def plain_unet(w: dict[str, Tensor], x: Tensor) -> Tensor:
    def pair(name: str, x: Tensor) -> Tensor:
        for i in "12":
            x = F.conv2d(x, w[f"{name}.conv{i}.weight"], w[f"{name}.conv{i}.bias"], padding=1)
            x = F.silu(F.group_norm(x, 8, w[f"{name}.norm{i}.weight"], w[f"{name}.norm{i}.bias"]))
        return x

    x, levels = x - 0.5, []
    for level in range(4):
        x = pair(f"down.{level}", F.max_pool2d(x, 2) if level else x)
        levels.append(x)
    for step in range(3):
        x = F.interpolate(F.conv2d(x, w[f"narrow.{step}.weight"], w[f"narrow.{step}.bias"]), scale_factor=2)
        x = pair(f"up.{step}", torch.cat([x, levels[2 - step]], 1))
    return F.conv2d(x, w["out.weight"], w["out.bias"])


def train(folder: Path, *more: str) -> Path:
    sizes = ["--size", "16", "--particles", "96", "--robot-points", "4", "--width", "8", "--layers", "1", "--heads", "2",
             "--mlp", "8", "--encoder-width", "8", "--features", "8", "--render-hidden", "16", "--render-samples", "8"]  # fmt: skip
    training = ["--epoch-steps", "2", "--rollout", "1", "--batch", "2", "--rays", "16", "--validation-every", "4",
                "--evaluation-windows", "1", "--evaluation-rollout", "1"]  # fmt: skip
    done = subprocess.run(
        [program(), "train", "particles", "--data", STATES, "--out", folder, *sizes, *training, *more, "--quiet", "--threads", "1"],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return folder


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return train(tmp_path_factory.mktemp("particles") / "run", "--steps", "2")


def test_checkpoint(run: Path) -> None:
    model = HDVPD.from_checkpoint(run / "last.safetensors")
    safetensors = pytest.importorskip("safetensors.torch")
    stored = safetensors.load_file(run / "last.safetensors")
    assert all(torch.equal(tensor, stored[name]) for name, tensor in model.state_dict().items())
    images = torch.rand(1, 3, 16, 24)
    weights = dict(model.encoder.named_parameters())
    torch.testing.assert_close(model.encoder(images), plain_unet(weights, images), rtol=1e-5, atol=1e-5)
    x, f = 0.3 * torch.randn(1, 40, 3), torch.randn(1, 40, 8)
    moves, changes = model.interlacer(x, f)
    origins = torch.tensor([[[1.5, 0.0, 0.0]]]).expand(1, 6, 3)
    seen = model.renderer(x + moves, f + changes, origins, F.normalize(-origins + 0.1 * torch.randn(1, 6, 3), dim=-1))
    assert seen.colour.shape == (1, 6, 3) and not model.training


def test_averaged_weights(tmp_path: Path) -> None:
    """Where training kept averages, they are the model here and in `topomask eval`."""
    safetensors = pytest.importorskip("safetensors")
    pytest.importorskip("safetensors.torch")
    folder = train(tmp_path / "run", "--steps", "4", "--ema", "0.5", "--learning-rate", "0.01", "--clip-norm", "1")

    def stored(path: Path) -> tuple[dict[str, Tensor], dict[str, str]]:
        with safetensors.safe_open(path, "pt") as file:
            return {name: file.get_tensor(name) for name in file.keys()}, file.metadata()

    def loads(path: Path, expected: dict[str, Tensor]) -> bool:
        found = HDVPD.from_checkpoint(path).state_dict()
        return found.keys() == expected.keys() and all(torch.equal(found[name], expected[name]) for name in expected)

    def scores(path: Path) -> list[dict[str, float]]:
        done = subprocess.run(
            [program(), "eval", "--checkpoint", path, "--json", "--threads", "1"], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)["rollout"]["model"]

    last = folder / "last.safetensors"
    tensors, metadata = stored(last)
    averages = {name.removeprefix("ema."): tensor for name, tensor in tensors.items() if name.startswith("ema.")}
    own = {name: tensors[name] for name in averages}
    assert any(not torch.equal(own[name], averages[name]) for name in averages)
    assert loads(last, averages) and not loads(last, own)
    # Files that hold one kind of weights alone.
    files = {}
    for name, weights in (("averages", averages), ("own", own)):
        files[name] = tmp_path / f"{name}.safetensors"
        safetensors.torch.save_file(weights, files[name], metadata)
        assert loads(files[name], weights)
    assert scores(last) == scores(files["averages"])
    assert scores(last) != scores(files["own"])
    # The best weights are averages under plain names: what the best epoch was judged by.
    best, notes = stored(folder / "best.safetensors")
    assert best.keys() == averages.keys() and loads(folder / "best.safetensors", best)
    if notes["epoch"] == "2":
        assert all(torch.equal(best[name], averages[name]) for name in best)


def test_errors(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown key 'widht', did you mean 'width'"):
        Interlacer(4, widht=3)
    # Settings of runs, which a model by itself would ignore.
    for setting in ({"steps": 3}, {"data": "robot"}, {"robot_points": 4}, {"flow_loss": 1.0}, {"device": "cpu"}):
        name = next(iter(setting)).replace("_", "-")
        with pytest.raises(ValueError, match=f"unknown key '{name}', expected local, features, width, .* seed"):
            Interlacer(4, **setting)
    with pytest.raises(ValueError, match="unknown key 'neighbors', did you mean 'neighbours'"):
        Interlacer(4, neighbors=3)
    with pytest.raises(ValueError, match="must divide the width 16, got 3"):
        Interlacer(4, width=16, heads=3)
    with pytest.raises(ValueError, match=r"features \[B, N, 4\]"):
        Interlacer(4, **SMALL)(torch.randn(1, 30, 3), torch.randn(1, 30, 5))
    with pytest.raises(ValueError, match="interlacer: expected floating-point numbers"):
        Interlacer(4, local="none", **SMALL)(torch.ones(1, 30, 3, dtype=torch.int64), torch.randn(1, 30, 4))
    with pytest.raises(ValueError, match="unet: expected floating-point numbers"):
        topomask.nn.HDVPD.from_checkpoint(run / "last.safetensors").encoder(torch.ones(1, 3, 32, 32, dtype=torch.uint8))
    with pytest.raises(ValueError, match="is of 'topomask train particles', not of 'topomask train vit'"):
        topomask.nn.VisionTransformer.from_checkpoint(run / "last.safetensors")
    assert json.loads((run / "result.json").read_text())["model"] == "particles"
