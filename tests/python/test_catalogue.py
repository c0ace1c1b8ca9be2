"""Names, defaults and descriptions stand in the library's catalogue; all that repeats them for a reader agrees."""

import inspect
import re
import subprocess
from pathlib import Path

import pytest
import topomask
import torch
from topomask._ops import ops

ROOT = Path(__file__).parents[2]
CATALOGUE = topomask.catalogue()
BY_NAME = [info for info in CATALOGUE if info["by_name"]]


def make(info: dict) -> topomask.Mask:
    """The mask with nothing but defaults."""
    graphs = {"forest": "tree:3", "hypercube-heat": "hypercube:3"}
    graph = topomask.Graph.load(graphs.get(info["name"], "karate"))
    kind = getattr(topomask, info["python_name"])
    if info["name"] == "toeplitz":
        return kind((4, 5))
    return kind(graph if info["on_graph"] else graph.num_nodes)


@pytest.mark.parametrize("info", BY_NAME, ids=lambda info: info["name"])
def test_python_classes_have_the_settings_parameters_and_defaults_of_the_catalogue(info: dict) -> None:
    kind = getattr(topomask, info["python_name"])
    signature = inspect.signature(kind.__init__).parameters
    settings = {setting["name"]: setting for setting in info.get("settings", [])}
    if kind is topomask.GRFMask and info["name"] != "grf":
        return  # the same class with other settings
    arguments = set(signature) - {"self", "graph", "heads", "num_nodes", "dtype", "init"}
    given = {parameter["name"] for parameter in info.get("parameters", [])}
    assert arguments - given == set(settings) - {"init"}
    for name in arguments - {"extent"}:
        assert signature[name].default in (None, inspect.Parameter.empty), f"{name} has a default of its own"
    text = inspect.getdoc(kind) or ""
    for name, setting in settings.items():
        if name in ("init", "seed", "max_bytes") or not setting["default"]:
            continue
        default = {"true": "True", "false": "False"}.get(setting["default"], setting["default"])
        place = re.search(rf"^\s*{name}: ", text, re.M)
        said = text[place.end() : place.end() + 400] if place else text
        assert f'"{default}"' in said or f"({default})" in said, f"{kind.__name__} does not say that {name} is {default}"
    mask = make(info)
    assert {name for name, _ in mask.named_parameters()} == given


def test_the_shell_knows_every_mask_and_setting() -> None:
    program = Path(topomask.__file__).parent / "bin" / "topomask"
    text = subprocess.run([program, "attend", "--help"], capture_output=True, text=True, check=True).stdout
    flat = " ".join(text.split())
    for info in BY_NAME:
        assert info["name"] in flat
        for setting in info.get("settings", []):
            if setting["name"] not in ("seed", "init"):
                assert "--" + setting["name"].replace("_", "-") in text


def test_the_readme_lists_the_catalogue() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| `(\w+)` \| (.*?) \| (.*?) \|", (ROOT / "README.md").read_text(), re.M)
    assert [row[0] for row in rows] == [info["name"] for info in CATALOGUE]
    for (name, python_name, _, product), info in zip(rows, CATALOGUE, strict=True):
        assert python_name == info["python_name"], name
        assert product == info["product"], name


def test_defaults_of_attention_are_the_librarys() -> None:
    text = inspect.getdoc(topomask.attention) or ""
    for name in ("epsilon", "num_features", "normaliser_guard"):
        assert inspect.signature(topomask.attention).parameters[name].default is None
        assert re.search(rf"{name}: .*\([\de-]+\)", text), name
    q = torch.rand(1, 1, 5, 4)
    explicit = ops.attention(q, q, q, "", [], [], "linear", "relu", "auto", 1e-3, 64, 0, 1e-20, 0, False)
    assert torch.equal(topomask.attention(q, q, q), explicit)
