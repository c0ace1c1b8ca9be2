"""The library's catalogue of masks as Python shows it: arguments, signatures and docstrings."""

import json
import textwrap
from inspect import Parameter, Signature, cleandoc
from typing import Any

from topomask._ops import ops

_PLACES = {
    "graph": "N nodes: a Graph, a NetworkX graph, a SciPy matrix or a PyTorch Geometric Data",
    "num_nodes": "N",
}


def catalogue() -> list[dict[str, Any]]:
    """Every mask: name, description, cost, settings with defaults, parameters with shapes, arguments."""
    return json.loads(ops.mask_catalogue())


def arguments_of(info: dict[str, Any], positional: list[str]) -> dict[str, dict[str, Any]]:
    """Arguments by name, positional ones first; the very first is required."""
    known = {argument["name"]: argument for argument in info["arguments"]}
    first = {"description": _PLACES.get(positional[0], ""), **known.get(positional[0], {})}
    known[positional[0]] = {**first, "default": Parameter.empty}
    return {name: known[name] for name in (*positional, *(name for name in known if name not in positional))}


def signature_of(arguments: dict[str, dict[str, Any]], positional: list[str]) -> Signature:
    kinds = {True: Parameter.POSITIONAL_OR_KEYWORD, False: Parameter.KEYWORD_ONLY}
    parameters = ((name, kinds[name in positional], own["default"]) for name, own in arguments.items())
    return Signature([Parameter(name, kind, default=default) for name, kind, default in parameters])


def docstring_of(info: dict[str, Any], arguments: dict[str, dict[str, Any]], own: str | None) -> str:
    """The text of the catalogue, then that of the class, then the arguments with their defaults."""
    learned = ", ".join(f"`{own['name']}` {own['shape']}" for own in info["parameters"])
    lines = ["Args:"]
    for name, argument in arguments.items():
        start = argument.get("start", repr(argument["default"]))
        shown = "" if start in ("None", repr(Parameter.empty)) else f" ({start})"
        line = f"{name}: {argument['description']}{shown}."
        lines.append(textwrap.fill(line, 110, initial_indent=" " * 4, subsequent_indent=" " * 8))
    opening = f"{info['description']}; {info['product']} per column."
    parts = [textwrap.fill(opening + (f" Learned: {learned}." if learned else ""), 110), cleandoc(own or "")]
    return "\n\n".join([*filter(None, parts), "\n".join(lines)])


def bound(owner: str, signature: Signature, values: tuple[Any, ...], named: dict[str, Any]) -> dict[str, Any]:
    """The given arguments by name; None stands for a default. Raises TypeError if they do not fit."""
    for name in named.keys() - signature.parameters.keys():
        hint = ops.nearest_or_all(name, list(signature.parameters))
        raise TypeError(f"{owner}: there is no argument '{name}'{hint}")
    try:
        arguments = signature.bind(*values, **named).arguments
    except TypeError as error:
        raise TypeError(f"{owner}: {error}") from None
    first = next(iter(signature.parameters))
    if arguments[first] is None:
        raise TypeError(f"{owner}: {first} must be given, got None")
    return {name: value for name, value in arguments.items() if value is not None}


def settings_text(given: dict[str, Any]) -> str:
    """Settings as the library reads them; None stands for a default."""
    return json.dumps({name: as_text(value) for name, value in given.items() if value is not None})


def as_text(value: Any) -> str:
    """A setting as the library reads it."""
    if getattr(value, "ndim", None) == 0:
        value = value.item()
    if isinstance(value, str):
        return value
    if hasattr(value, "__iter__"):
        return ",".join(map(as_text, value))
    return str(value).lower() if isinstance(value, bool) else repr(value)
