"""The Python in the documentation runs as it is written, page by page; and the package is typed."""

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
import topomask
import torch

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


def blocks(page: Path) -> list[str]:
    return re.findall(r"^```python\n(.*?)^```", page.read_text(), re.DOTALL | re.MULTILINE)


@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page)], ids=lambda page: page.stem)
def test_page(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    n, h = 100, 2
    edge_index = torch.randint(n, (2, 4 * n))
    names = {"torch": torch, "topomask": topomask, "n": n, "h": h, "edge_index": edge_index}
    shape = (1, 4, 181 * 181, 4) if page.name == "README.md" else (1, h, n, 8)
    names |= {name: torch.randn(shape) for name in "qkv"}
    for block in blocks(page):
        if "safetensors" in block and importlib.util.find_spec("safetensors") is None:
            pytest.skip("safetensors is not installed")
        exec(compile(block, str(page), "exec"), names)  # noqa: S102


def test_the_three_lines_are_in_the_docs() -> None:
    lines = "mask = topomask.GRFMask(graph, num_walks=8, p_halt=0.3, max_hops=4, heads=h, seed=1)"
    assert lines in (ROOT / "docs" / "getting-started.md").read_text()


def test_every_public_name_is_documented() -> None:
    text = (ROOT / "docs" / "python.md").read_text()
    missing = [name for name in topomask.__all__ if name not in text]
    assert not missing, missing


def test_api_reference(tmp_path: Path) -> None:
    script = ROOT / "scripts" / "make_api_reference.py"
    subprocess.run([sys.executable, script, "--out", tmp_path], check=True, capture_output=True)
    text = (tmp_path / "python.md").read_text()
    assert all(name in text for name in topomask.__all__)
    assert "read_safetensors" in (tmp_path / "cpp.md").read_text()


def test_types() -> None:
    pytest.importorskip("mypy")
    done = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", ROOT / "build" / "mypy"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout
