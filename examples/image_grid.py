"""How are neighbouring tiles of an image related? A tiny vision transformer with and without a mask.

python examples/image_grid.py

An image has 8 x 8 tiles of 4 x 4 noisy pixels, striped across or down with equal probability. The classes
differ only in how neighbouring tiles are related: at random, alike (clusters), or unlike (a noisy
chessboard). A single tile says nothing about the class.
"""

import argparse
import time

import torch
from torch import Tensor, nn

import topomask

SIDE, PATCH, CLASSES = 8, 4, 3


def images(count: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    """Images [count, 1, 32, 32] and their classes [count]."""
    labels = torch.randint(CLASSES, (count,), generator=generator)
    rough = torch.randn(count, 1, SIDE + 2, SIDE + 2, generator=generator)
    smooth = nn.functional.avg_pool2d(rough, 3, stride=1)
    chessboard = 1 - 2 * (torch.arange(SIDE)[:, None] + torch.arange(SIDE)).remainder(2)
    fields = torch.stack([rough[:, 0, 1:-1, 1:-1], smooth[:, 0], smooth[:, 0] * chessboard])
    across = fields[labels, torch.arange(count)] > 0  # [count, 8, 8]: which stripes each tile has
    stripes = (1 - 2 * torch.arange(PATCH).remainder(2)).float()[:, None].expand(PATCH, PATCH)
    tiles = torch.where(across[..., None, None], stripes, stripes.T)  # [count, 8, 8, 4, 4]
    pixels = tiles.permute(0, 1, 3, 2, 4).reshape(count, 1, SIDE * PATCH, SIDE * PATCH)
    return pixels + 0.5 * torch.randn(pixels.shape, generator=generator), labels


class TinyViT(nn.Module):
    """Patches and positions, two transformer blocks of linear attention, the mean over patches."""

    def __init__(self, dim: int, heads: int, masked: bool, seed: int) -> None:
        super().__init__()
        self.patches = nn.Conv2d(1, dim, PATCH, stride=PATCH)
        self.positions = nn.Parameter(0.02 * torch.randn(SIDE * SIDE, dim))
        grid = topomask.Graph.grid(SIDE, SIDE)
        self.blocks = nn.ModuleList()
        for layer in range(2):
            mask = None
            if masked:  # each block has its own walks and its own f
                mask = topomask.GRFMask(
                    grid,
                    num_walks=32,
                    p_halt=0.3,
                    max_hops=2,
                    heads=heads,
                    seed=2 * seed + layer,
                    init=[1.0, 1.0, 0.5],  # M starts as an estimate of I + W + W^2 / 2
                    ensembles="asymmetric",
                )
            self.blocks.append(topomask.nn.TransformerBlock(dim, heads, mask, mlp_ratio=2))
        self.output = nn.Linear(dim, CLASSES)

    def forward(self, x: Tensor) -> Tensor:
        x = self.patches(x).flatten(2).transpose(1, 2) + self.positions  # [B, 64, dim]
        for block in self.blocks:
            x = block(x)
        return self.output(x.mean(1))


def accuracy(masked: bool, seed: int, options: argparse.Namespace) -> float:
    generator = torch.Generator().manual_seed(seed)
    test_images, test_labels = images(512, generator)
    torch.manual_seed(seed)
    model = TinyViT(options.dim, options.heads, masked, seed)
    optimiser = torch.optim.Adam(model.parameters(), lr=options.lr)
    for _ in range(options.steps):
        x, labels = images(options.batch, generator)  # fresh images every step
        optimiser.zero_grad()
        nn.functional.cross_entropy(model(x), labels).backward()
        optimiser.step()
    with torch.no_grad():
        return (model(test_images).argmax(1) == test_labels).float().mean().item()


def main() -> None:
    parser = argparse.ArgumentParser(description="Neighbouring tiles of images: masked attention or not.")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--lr", type=float, default=2e-3)
    parser.add_argument("--dim", type=int, default=32)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--seeds", type=int, default=3)
    options = parser.parse_args()

    chance = 100 / CLASSES
    print(
        f"{SIDE} x {SIDE} patches, {options.steps} steps of {options.batch} images, chance is {chance:.1f} %"
    )
    print(f"{'attention':10}  test accuracy, mean ± std of {options.seeds} seeds      time")
    for name in ("GRF mask", "no mask"):
        start = time.perf_counter()
        values = [100 * accuracy(name == "GRF mask", seed, options) for seed in range(options.seeds)]
        mean, spread = torch.tensor(values).mean(), torch.tensor(values).std()
        print(f"{name:10}  {mean:5.1f} ± {spread:.1f} %{time.perf_counter() - start:35.1f} s", flush=True)


if __name__ == "__main__":
    main()
