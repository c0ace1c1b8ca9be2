"""The `topomask` command of the Python package: runs the program without importing torch first."""

import importlib.util
import os
import sys


def main() -> None:
    spec = importlib.util.find_spec("topomask")
    if spec is None or not spec.submodule_search_locations:
        sys.exit("topomask: the package is not installed")
    program = os.path.join(spec.submodule_search_locations[0], "bin", "topomask")
    try:
        os.execv(program, ["topomask", *sys.argv[1:]])
    except OSError as error:
        sys.exit(f"topomask: {program} does not run: {error.strerror}")
