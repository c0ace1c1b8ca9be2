"""The renderer of particles against the same in plain PyTorch."""

import pytest
import topomask
import torch
import torch.nn.functional as F
from topomask.nn import ParticleRenderer
from torch import Tensor


def plain(
    renderer: ParticleRenderer, positions: Tensor, features: Tensor, origins: Tensor, directions: Tensor
) -> Tensor:
    """One cloud, every step of every ray: positions [N, 3], features [N, F], origins, directions [R, 3] -> [R, 5]."""
    options = renderer.settings

    def layer(name: str, x: Tensor) -> Tensor:
        return F.linear(x, renderer.get_parameter(f"{name}.weight"), renderer.get_parameter(f"{name}.bias"))

    steps = round((options["farthest"] - options["nearest"]) / options["spacing"])
    t = options["nearest"] + (torch.arange(steps, dtype=torch.float64) + 0.5) * options["spacing"]
    exact = origins.double().unsqueeze(1) + t.view(1, -1, 1) * directions.double().unsqueeze(1)  # [R, S, 3]
    cell = torch.floor(exact * (1 / options["cell"]))
    own = torch.floor(positions.detach().double() * (1 / options["cell"]))
    near = ((cell.unsqueeze(2) - own).abs().amax(-1) <= 1).any(2)  # [R, S]
    taken = near & (near.cumsum(1) <= options["samples"])

    query = exact.to(positions.dtype)
    index = torch.cdist(exact, positions.detach().double()).topk(options["neighbours"], largest=False).indices
    distance = (positions[index] - query.unsqueeze(2)).norm(dim=-1, keepdim=True)  # [R, S, K, 1]
    radii, widths = positions.new_tensor(options["radii"]), positions.new_tensor(options["bandwidths"])
    w = torch.exp(-(((distance - radii) / widths) ** 2))  # [R, S, K, rings]
    mass = w.sum(2)
    mean = torch.einsum("rskm,rskf->rsmf", w, features[index]) / (mass.unsqueeze(-1) + 1e-3)
    seen = torch.cat([mean, torch.log1p(mass).unsqueeze(-1)], -1).flatten(2)
    h = F.relu(layer("trunk2", F.relu(layer("trunk1", seen))))
    sigma = 100 * F.softplus(layer("density", h).squeeze(-1) - 1)
    view = directions.unsqueeze(1).expand(-1, steps, -1)
    colour = torch.sigmoid(layer("colour2", F.relu(layer("colour1", torch.cat([h, view], -1)))))

    alpha = torch.where(taken, 1 - torch.exp(-sigma * options["spacing"]), 0)
    through = torch.cumprod(torch.cat([torch.ones_like(alpha[:, :1]), 1 - alpha], 1), 1)
    weight, left = alpha * through[:, :-1], through[:, -1:]
    depth = (weight * t.to(weight.dtype)).sum(1, keepdim=True) + left * options["farthest"]
    return torch.cat([(weight.unsqueeze(-1) * colour).sum(1) + left, 1 - left, depth], -1)


def scene(dtype: torch.dtype = torch.float32) -> list[Tensor]:
    """Two clouds of 400 particles on a ball of 10 cm, a metre from the rays; some rays miss it."""
    torch.manual_seed(1)
    positions = 0.1 * F.normalize(torch.randn(2, 400, 3), dim=-1) + 0.004 * torch.randn(2, 400, 3)
    origins = torch.tensor([1.0, 0.0, 0.0]) + 0.05 * torch.randn(2, 64, 3)
    directions = F.normalize(0.1 * torch.randn(2, 64, 3) - origins, dim=-1)
    return [x.to(dtype) for x in (positions, torch.randn(2, 400, 16), origins, directions)]


def test_renderer_agrees_with_plain_torch() -> None:
    positions, features, origins, directions = scene()
    renderer = ParticleRenderer(seed=2)
    positions.requires_grad_()
    features.requires_grad_()
    got = torch.cat([x if x.dim() == 3 else x.unsqueeze(-1) for x in renderer(positions, features, origins, directions)], -1)
    expected = torch.stack(
        [plain(renderer, *(x[b] for x in (positions, features, origins, directions))) for b in range(2)]
    )
    torch.testing.assert_close(got, expected, rtol=0, atol=1e-5)
    assert 0.2 < got[..., 3].mean() < 0.9 and got[..., :3].std() > 0.05  # there is something to see
    assert (got[..., 3] == 0).any()
    ahead = torch.randn_like(got)
    inputs = [positions, features, *renderer.parameters()]
    for ours, theirs in zip(
        torch.autograd.grad((got * ahead).sum(), inputs), torch.autograd.grad((expected * ahead).sum(), inputs), strict=True
    ):
        torch.testing.assert_close(ours, theirs, rtol=1e-3, atol=1e-4 * float(theirs.abs().max()))


def test_autocast_keeps_sums_in_float32() -> None:
    inputs = scene()
    renderer = ParticleRenderer(seed=2)
    expected = renderer(*inputs)
    inputs[0].requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        got = renderer(*inputs)
    assert got.colour.dtype == torch.float32
    torch.testing.assert_close(got.colour, expected.colour, rtol=0, atol=0.03)
    got.colour.sum().backward()
    assert inputs[0].grad is not None and inputs[0].grad.isfinite().all()


def test_errors() -> None:
    positions, features, origins, directions = scene()
    renderer = ParticleRenderer()
    rounded = (x.bfloat16() for x in (positions, features, origins, directions))
    assert renderer.bfloat16()(*rounded).colour.isfinite().all()  # rounding of directions is no error
    renderer = ParticleRenderer()
    with pytest.raises(ValueError, match="expected directions of length 1, got length 2"):
        renderer(positions, features, origins, 2 * directions)
    with pytest.raises(ValueError, match=r"expected features \[2, 400, 16\]"):
        renderer(positions, features[..., :3], origins, directions)
    with pytest.raises(ValueError, match="bandwidths must be above 0"):
        ParticleRenderer(bandwidths=(0, 1, 1, 1))(positions, features, origins, directions)
    with pytest.raises(ValueError, match="there is no argument 'sample', did you mean 'samples'"):
        ParticleRenderer(sample=3)
    with pytest.raises(ValueError, match="samples cannot be 2.5"):
        ParticleRenderer(samples=2.5)
    with pytest.raises(ValueError, match="radii cannot be 3"):
        ParticleRenderer(radii=3)
    for wrong in ({"radii": ["a"]}, {"cell": "a"}, {"cell": float("nan")}):
        with pytest.raises(ValueError, match="expected (finite numbers|numbers|a finite number)"):
            ParticleRenderer(**wrong)
    assert "ParticleRenderer" in topomask.nn.__all__


def test_initial_weights_follow_the_seed() -> None:
    first, same, other = (ParticleRenderer(seed=seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], same[name]) and not torch.equal(first[name], other[name]) for name in first)
