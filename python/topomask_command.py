"""The `topomask` command of the Python package: runs the program without importing torch first."""

import importlib.util
import os
import sys
from glob import glob


def folder_of(package: str) -> str:
    spec = importlib.util.find_spec(package)
    if spec is None or not spec.submodule_search_locations:
        sys.exit(f"topomask: the package {package} is not installed")
    return spec.submodule_search_locations[0]


def main() -> None:
    program = os.path.join(folder_of("topomask"), "bin", "topomask")
    # The program looks for torch, and for the CUDA that torch brings, beside the package; they may be elsewhere.
    torch = folder_of("torch")
    folders = [os.path.join(torch, "lib"), *sorted(glob(os.path.join(torch, "..", "nvidia", "cu*", "lib")))]
    folders.append(os.environ.get("LD_LIBRARY_PATH", ""))
    os.environ["LD_LIBRARY_PATH"] = os.pathsep.join(folder for folder in folders if folder)
    try:
        os.execv(program, ["topomask", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"topomask: {program} does not run: {error.strerror}")
