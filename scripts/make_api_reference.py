"""Writes the API reference: python.md from the package's docstrings, cpp.md from the comments of the headers.

PYTHONPATH=build/release/python python scripts/make_api_reference.py --out build/docs/api

The package must be importable, nothing else is needed. What it writes is not in the repository.
"""

import argparse
import importlib
import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).resolve().parent.parent
# The submodules that are interfaces of their own; everything else is reached from `topomask`.
MODULES = ("topomask", "topomask.distributed", "topomask.nn", "topomask.pyg", "topomask.transformers")


def public_names(module: ModuleType) -> list[str]:
    return [name for name in module.__all__ if not inspect.ismodule(getattr(module, name))]


def parameter_text(parameter: inspect.Parameter) -> str:
    """`name: annotation = default`; annotations are text here, which inspect would quote."""
    stars = {parameter.VAR_POSITIONAL: "*", parameter.VAR_KEYWORD: "**"}.get(parameter.kind, "")
    text = stars + parameter.name
    if parameter.annotation is not parameter.empty:
        text += f": {annotation_text(parameter.annotation)}"
    if parameter.default is not parameter.empty:
        text += f" = {parameter.default!r}"
    return text


def annotation_text(annotation: object) -> str:
    return annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)


def signature(name: str, thing: Callable[..., object]) -> str:
    """`name(a, b=1) -> result`, with a line for each argument where it is long."""
    given = inspect.signature(thing)
    shown: list[str] = []
    for parameter in given.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and not any(text.startswith("*") for text in shown):
            shown.append("*")
        shown.append(parameter_text(parameter))
    result = ""
    if not inspect.isclass(thing) and given.return_annotation is not given.empty:
        result = f" -> {annotation_text(given.return_annotation)}"
    line = f"{name}({', '.join(shown)}){result}"
    if len(line) <= 100:
        return line
    return f"{name}(\n" + "".join(f"    {text},\n" for text in shown) + f"){result}"


def docstring(thing: object) -> str:
    """Its docstring with the sections as Markdown; what is indented elsewhere is code, in Markdown too."""
    out: list[str] = []
    section = ""
    for line in inspect.cleandoc(thing.__doc__ or "").splitlines():
        if line in ("Args:", "Returns:"):
            section = line
            out += [f"**{'Arguments' if section == 'Args:' else 'Returns'}**", ""]
        elif not line:
            section = ""
            out.append(line)
        elif section == "Args:" and (item := re.match(r"    (\w[\w, ]*): (.*)", line)):
            out.append(f"- `{item[1]}`: {item[2]}")
        elif section:
            out.append(("  " if section == "Args:" else "") + line.strip())
        else:
            out.append(line)
    return "\n".join(out)


def members(cls: type) -> Iterator[tuple[str, object]]:
    """What the class itself adds, with a docstring, in the order of its source."""
    for name, member in vars(cls).items():
        if name.startswith("_"):
            continue
        inner = member.__func__ if isinstance(member, (staticmethod, classmethod)) else member
        if getattr(inner, "__doc__", None) and (inspect.isfunction(inner) or isinstance(inner, property)):
            yield name, inner


def describe_python(module: ModuleType) -> Iterator[str]:
    yield f"## {module.__name__}\n"
    if module.__name__ != "topomask":
        yield docstring(module) + "\n"
    for name in public_names(module):
        thing = getattr(module, name)
        yield f"### {module.__name__}.{name}\n"
        yield f"```python\n{signature(name, thing)}\n```\n"
        yield docstring(thing) + "\n"
        if not inspect.isclass(thing):
            continue
        for member_name, member in members(thing):
            shown = signature(member_name, member) if inspect.isfunction(member) else member_name
            yield f"#### {name}.{member_name}\n"
            yield f"```python\n{shown}\n```\n"
            yield docstring(member) + "\n"


def python_reference() -> str:
    parts = ["# Python reference\n"]
    for name in MODULES:
        parts += describe_python(importlib.import_module(name))
    return "\n".join(parts)


def describe_header(path: Path) -> str:
    """The opening comment as text, then the declarations with their comments as they stand."""
    lines = path.read_text().splitlines()
    start = lines.index("#pragma once")
    opening = [line.removeprefix("//").strip() for line in lines[:start]]
    body = "\n".join(line for line in lines[start + 1 :] if not line.startswith("#include"))
    body = re.sub(r"^(?:namespace topomask \{|\}  // namespace topomask)$", "", body, flags=re.MULTILINE)
    body = re.sub(r"\n{3,}", "\n\n", body).strip("\n")
    return f"## topomask/{path.name}\n\n" + "\n".join(opening) + f"\n\n```cpp\n{body}\n```\n"


def cpp_reference() -> str:
    headers = sorted((ROOT / "include" / "topomask").glob("*.h"))
    start = "# C++ reference\n\nEverything is in the namespace `topomask`.\n"
    return "\n".join([start, *(describe_header(path) for path in headers)])


def main() -> None:
    parser = argparse.ArgumentParser(description="Writes the API reference, python.md and cpp.md.")
    parser.add_argument("--out", type=Path, default=ROOT / "build/docs/api", help="folder for the files")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    for name, text in (("python.md", python_reference()), ("cpp.md", cpp_reference())):
        (out / name).write_text(text)
        print(f"{out / name}: {text.count(chr(10)):,} lines")


if __name__ == "__main__":
    main()
