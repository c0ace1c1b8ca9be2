"""What is installed: the files of the package from the build tree, and a wheel where one is named."""

import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
import topomask

ROOT = Path(__file__).resolve().parents[2]
LIBRARIES = {"libtopomask.so.0", "libtopomask_models.so.0", "libtopomask_ops.so"}
# What a wheel may expect to be there: torch and what it brings, and what every Linux has.
EXPECTED = r"lib(torch|torch_cpu|torch_cuda|c10|c10_cuda|gomp|cudart|c|m|dl|rt|pthread|stdc\+\+|gcc_s|z)\.so|ld-linux"


def package_files() -> set[str]:
    sources = {f"topomask/{path.name}" for path in (ROOT / "python" / "topomask").glob("*.py")}
    others = {"topomask/VERSION", "topomask/py.typed", "topomask/bin/topomask", "topomask_command.py"}
    return sources | others | {f"topomask/lib/{name}" for name in LIBRARIES}


def run(*command: str | Path, **environment: str) -> str:
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd="/", env={**os.environ, **environment}
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_installed_package_is_complete(tmp_path: Path) -> None:
    build = Path(topomask.__path__[0]).parents[1]
    run("cmake", "--install", build, "--component", "python", "--prefix", tmp_path)
    installed = {str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()}
    links = {name for name in installed if re.search(r"\.so\.\d+\.\d+\.\d+$", name)}  # not in a wheel
    assert installed - links == package_files()
    version = (ROOT / "VERSION").read_text().strip()
    path = {"PYTHONPATH": str(tmp_path), "PYTHONDONTWRITEBYTECODE": "1"}
    code = "import topomask; print(topomask.__file__, topomask.__version__)"
    assert run(sys.executable, "-c", code, **path).split() == [str(tmp_path / "topomask" / "__init__.py"), version]
    assert run(sys.executable, "-m", "topomask", "--version", **path).split()[0] == version  # the commit follows
    assert "--graph" in run(sys.executable, "-m", "topomask", "attend", "--help", **path)


def test_missing_operators_are_a_sentence(tmp_path: Path) -> None:
    shutil.copytree(Path(topomask.__path__[0]), tmp_path / "topomask", ignore=shutil.ignore_patterns("lib", "bin"))
    done = subprocess.run(
        [sys.executable, "-c", "import topomask"], capture_output=True, text=True, check=False, cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
    )  # fmt: skip
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ImportError: topomask's operators do not load ("), last
    assert f"{tmp_path}/topomask/lib/libtopomask_ops.so" in last
    assert last.endswith("with 'pip install . --no-build-isolation'")


@pytest.mark.skipif("TOPOMASK_WHEEL" not in os.environ, reason="TOPOMASK_WHEEL names no wheel to look at")
def test_wheel(tmp_path: Path) -> None:
    with zipfile.ZipFile(os.environ["TOPOMASK_WHEEL"]) as wheel:
        wheel.extractall(tmp_path)
        names = {name for name in wheel.namelist() if ".dist-info/" not in name}
    assert package_files() <= names
    bundled = {Path(name).name for name in names - package_files()}
    assert all(".so" in name for name in bundled)
    for name in sorted(LIBRARIES | bundled | {"topomask"}):
        folder = "bin" if name == "topomask" else "lib"
        dynamic = run("readelf", "-d", tmp_path / "topomask" / folder / name)
        for needed in re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic):
            assert needed in LIBRARIES | bundled or re.match(EXPECTED, needed), (name, needed)
        for paths in re.findall(r"\((?:RPATH|RUNPATH)\).*\[(.*)\]", dynamic):
            assert all(path.startswith("$ORIGIN") for path in paths.split(":")), (name, paths)
