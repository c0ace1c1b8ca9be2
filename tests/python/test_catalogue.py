"""Names, defaults and descriptions stand in the library's catalogue; all that repeats them for a reader agrees."""

import ast
import inspect
import json
import pickle
import pydoc
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import topomask
import topomask.pyg
import topomask.transformers
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


# The arguments that may go without their names. What calls of today's programs rely on is not to change.
POSITIONAL = {
    "GRFMask": "graph num_walks p_halt max_hops heads seed",
    "PowerSeriesMask": "graph max_power heads",
    "NoMask": "num_nodes",
    "CausalMask": "num_nodes",
    "NeighbourMask": "graph hops",
    "DegreeMask": "graph heads",
    "ToeplitzMask": "extent heads",
    "ForestMask": "graph heads",
    "HypercubeHeatMask": "graph heads",
    "ShortestPathMask": "graph max_distance heads",
    "LearnedFeaturesMask": "num_nodes rank heads",
    "SineSPEMask": "num_nodes realisations heads",
    "ConvolutionalSPEMask": "num_nodes realisations heads",
}
NAMED = {
    "GRFMask": "init key_init ensembles coupling shared_walks step length importance_weights normalise dtype",
    "PowerSeriesMask": "init squared normalise dtype",
    "NoMask": "",
    "CausalMask": "",
    "NeighbourMask": "include_self",
    "DegreeMask": "max_degree init",
    "ToeplitzMask": "decay transform init",
    "ForestMask": "a b weighted",
    "HypercubeHeatMask": "beta laplacian",
    "ShortestPathMask": "decay init max_bytes",
    "LearnedFeaturesMask": "init seed",
    "SineSPEMask": "waves frequencies gains phases seed",
    "ConvolutionalSPEMask": "taps query_filter key_filter seed",
}


@pytest.mark.parametrize("info", BY_NAME, ids=lambda info: info["name"])
def test_python_classes_take_what_the_catalogue_says(info: dict) -> None:
    kind = getattr(topomask, info["python_name"])
    if kind is topomask.GRFMask and info["name"] != "grf":
        return  # the same class with other settings
    signature = inspect.signature(kind).parameters
    in_order = [name for name, own in signature.items() if own.kind is own.POSITIONAL_OR_KEYWORD]
    assert in_order == POSITIONAL[kind.__name__].split()
    assert set(signature) - set(in_order) == set(NAMED[kind.__name__].split())
    lines = pydoc.render_doc(kind, renderer=pydoc.plaintext).splitlines()
    text = " ".join(" ".join(line.removeprefix(" |") for line in lines).split())
    assert info["description"] in text and info["product"] in text
    settings = {setting["name"] for setting in info["settings"]}
    for setting in info["settings"]:
        assert f"{setting['name']}: {setting['description']}" in text
        if setting["default"] is not None:
            assert signature[setting["name"]].default == setting["default"]
            assert f"{setting['name']}={setting['default']!r}" in text  # in the signature
            described = text[text.index(f"{setting['name']}: {setting['description']}") :]
            assert described.index(f"({setting['default']!r}).") < 500
    for parameter in info["parameters"]:
        assert parameter["name"] in text and parameter["shape"] in text
        assert "init" in settings or f"({parameter['start']})." in text
        assert kind.__annotations__[parameter["name"]] == "nn.Parameter"
    assert {name for name, _ in make(info).named_parameters()} == {p["name"] for p in info["parameters"]}


def test_arguments_by_place_and_by_name_are_the_same(karate: topomask.Graph) -> None:
    by_place = topomask.GRFMask(karate, 4, 0.3, 5, 2, 9)
    by_name = topomask.GRFMask(graph=karate, num_walks=4, p_halt=0.3, max_hops=5, heads=2, seed=9, init=None)
    assert repr(by_place) == repr(by_name)
    assert torch.equal(by_place.dense(), by_name.dense())
    assert topomask.GRFMask(karate, np.int64(4), np.float64(0.3), 5, 2, torch.tensor(9)).heads == 2
    assert topomask.GRFMask(karate, length=[1, 0.5, 0.25]).f.shape == (1, 3)
    assert topomask.GRFMask(karate, max_hops=1, init=torch.ones(1, 2).double()).f.dtype == torch.float32
    assert topomask.GRFMask(karate, max_hops=1, init=[1, 2], dtype=torch.float64).f.tolist() == [[1.0, 2.0]]
    assert topomask.ToeplitzMask((2, 3), init=torch.ones(1, 15).double()).offsets.dtype == torch.float64
    assert topomask.ToeplitzMask([2, 3]).extent == topomask.ToeplitzMask("2x3").extent == (2, 3)


@pytest.mark.parametrize(
    "arguments, named, message",
    [
        ((), {"num_walk": 3}, "GRFMask: there is no argument 'num_walk', did you mean 'num_walks'?"),
        ((), {"xyz": 3}, "GRFMask: there is no argument 'xyz', expected graph, num_walks, p_halt"),
        ((), {"num_walks": 3}, "GRFMask: missing a required argument: 'graph'"),
        ((None,), {}, "GRFMask: graph must be given, got None"),
        ((1, 2, 3, 4, 5, 6, 7), {}, "GRFMask: too many positional arguments"),
        ((1, 2), {"num_walks": 3}, "GRFMask: multiple values for argument 'num_walks'"),
    ],
)
def test_wrong_arguments_are_named(arguments: tuple, named: dict, message: str) -> None:
    with pytest.raises(TypeError, match=re.escape(message)):
        topomask.GRFMask(*arguments, **named)
    with pytest.raises(ValueError, match="1 to 3 sizes of at least 1, got '2,0'"):
        topomask.ToeplitzMask((2, 0))
    with pytest.raises(ValueError, match="NodeKernel: unknown parameter 'num_walk', did you mean 'num_walks'?"):
        topomask.NodeKernel(topomask.Graph.grid(2)).set_params(num_walk=3)


def test_classes_of_ones_own_are_derived_from_them(karate: topomask.Graph) -> None:
    class Local(topomask.GRFMask):
        def __init__(self, graph: topomask.Graph, hops: int) -> None:
            super().__init__(graph, 4, max_hops=hops)

    assert list(inspect.signature(Local).parameters) == ["graph", "hops"]
    assert Local(karate, 2).f.shape == (1, 3)
    copied = pickle.loads(pickle.dumps(topomask.GRFMask(karate, 4)))  # noqa: S301
    assert torch.equal(copied.dense(), topomask.GRFMask(karate, 4).dense())


def test_the_shell_knows_every_mask_and_setting() -> None:
    program = Path(topomask.__file__).parent / "bin" / "topomask"
    text = subprocess.run([program, "attend", "--help"], capture_output=True, text=True, check=True).stdout
    flat = " ".join(text.split())
    for info in BY_NAME:
        assert info["name"] in flat
        for setting in info["settings"]:
            if setting["name"] not in ("seed", "init"):
                assert "--" + setting["name"].replace("_", "-") in text


def test_the_readme_lists_the_catalogue() -> None:
    rows = re.findall(r"^\| `([\w-]+)` \| `(\w+)` \| (.*?) \| (.*?) \|", (ROOT / "README.md").read_text(), re.M)
    assert [row[0] for row in rows] == [info["name"] for info in CATALOGUE]
    for (name, python_name, _, product), info in zip(rows, CATALOGUE, strict=True):
        assert python_name == info["python_name"], name
        assert product == info["product"], name


# Arguments whose option has another name in the library.
OTHER_NAMES = {
    topomask.partition: {"method": "partition_method", "seed": "partition_seed"},
    topomask.distributed.partition: {"method": "partition_method", "seed": "partition_seed"},
    topomask.distributed.plan: {"device": "device_profile", "partition": "partition_method"},
    topomask.Graph.normalised: {"how": "normalise"},
    topomask.distributed.DistributedGraph.normalised: {"how": "normalise"},
}


@pytest.mark.parametrize(
    "function",
    [
        topomask.attention, topomask.plan_attention, topomask.plan_ensembles, topomask.partition, topomask.distributed.attention,
        topomask.distributed.partition, topomask.distributed.plan, topomask.distributed.DistributedGraph.normalised,
        topomask.distributed.GRFMask, topomask.nn.GraphMaskedAttention, topomask.Graph.from_edge_index, topomask.Graph.from_points,
        topomask.Graph.grid, topomask.Graph.normalised, topomask.NodeKernel, topomask.pyg.GRFConv, topomask.transformers.attach,
    ],
    ids=lambda function: function.__qualname__,
)  # fmt: skip
def test_defaults_are_the_librarys(function: Callable) -> None:
    """Those of the signature; and where that says None, the number in brackets in the docstring."""
    known, seen = json.loads(ops.option_catalogue()), 0
    text = inspect.getdoc(function) or ""
    for name, parameter in inspect.signature(function).parameters.items():
        option = known.get(OTHER_NAMES.get(function, {}).get(name, name))
        if option is None or parameter.default is parameter.empty:
            continue
        default, seen = option["default"], seen + 1
        if parameter.default is not None:
            assert (parameter.default, type(parameter.default)) == (default, type(default)), name
        elif described := re.search(rf"^ *{name}: .*?\((\S+)\)", text, re.MULTILINE):
            assert ast.literal_eval(described[1].removesuffix(".")) == default, name
    assert seen > 0


@pytest.mark.parametrize("name", ["epsilon", "num_features", "normaliser_guard"])
def test_docstring_of_attention_has_the_numbers(name: str) -> None:
    assert re.search(rf"{name}: .*\([\de-]+\)", inspect.getdoc(topomask.attention) or "")


def test_docstrings_have_every_word() -> None:
    known = json.loads(ops.option_catalogue())
    for function, names in (
        (topomask.attention, ("kind", "feature_map", "engine")),
        (topomask.Graph.normalised, ("normalise",)),
        (topomask.partition, ("partition_method",)),
    ):
        for word in (word for name in names for word in known[name]["words"]):
            assert f'"{word}"' in (inspect.getdoc(function) or ""), word


@pytest.mark.parametrize("module", [topomask.nn.VisionTransformer(8, 4), topomask.nn.ParticleRenderer()], ids=lambda m: type(m).__name__)
def test_docstrings_of_modules_have_every_setting(module: torch.nn.Module) -> None:
    text = inspect.getdoc(type(module)) or ""
    assert not [name for name in module.settings if not re.search(rf"\b{name}\b", text)]


def test_what_is_not_given_is_the_librarys() -> None:
    q = torch.rand(1, 1, 5, 4)
    known = {name: option["default"] for name, option in json.loads(ops.option_catalogue()).items()}
    names = "kind feature_map engine epsilon num_features feature_seed normaliser_guard".split()
    explicit = ops.attention(q, q, q, "", [], [], *(known[name] for name in names), 0, known["check_finite"])
    assert torch.equal(topomask.attention(q, q, q), explicit)
    assert torch.equal(topomask.attention(q, q, q, kind="linear", feature_map="relu", engine="auto"), explicit)


def test_python_has_every_mask_of_the_catalogue() -> None:
    assert {info["python_name"] for info in CATALOGUE} <= set(topomask.masks.__all__)


def test_low_rank_mask() -> None:
    left, right = torch.rand(5, 2), torch.rand(3, 5, 2)
    mask = topomask.LowRankMask(left.expand(3, 5, 2), right, learnable=True)
    assert mask.heads == 3 and mask.rank() == 2
    torch.testing.assert_close(mask.dense(), left @ right.mT)
    assert {name for name, _ in mask.named_parameters()} == {"left", "right"}
    assert not topomask.LowRankMask(left, left).left.requires_grad
