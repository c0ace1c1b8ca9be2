"""Finds the compiled operators and loads them into torch."""

from __future__ import annotations

import re
from pathlib import Path

import torch

_FOLDER = Path(__file__).parent
SUPPORTED_TORCH = ((2, 11), (2, 13))


def version() -> str:
    """The version of topomask, as the project's one VERSION file says it."""
    return (_FOLDER / "VERSION").read_text().strip()


def check_torch(torch_version: str) -> None:
    """Raises ImportError unless topomask supports that torch."""
    low, high = SUPPORTED_TORCH
    match = re.match(r"(\d+)\.(\d+)", torch_version)
    minor = (int(match[1]), int(match[2])) if match else (0, 0)
    if not low <= minor <= high:
        raise ImportError(
            f"topomask {version()} supports torch {low[0]}.{low[1]} to {high[0]}.{high[1]}, "
            f"but torch {torch_version} is installed"
        )


def program() -> Path:
    """Where the `topomask` command line program is."""
    return _FOLDER / "bin" / "topomask"


def load_operators() -> None:
    """Makes torch.ops.topomask.* available."""
    check_torch(torch.__version__)
    library = _FOLDER / "lib" / "libtopomask_ops.so"
    if not library.exists():
        raise ImportError(
            f"topomask's operators are not at {library}: build and install topomask with "
            "'pip install . --no-build-isolation'"
        )
    try:
        torch.ops.load_library(str(library))
    except OSError as error:
        raise ImportError(
            f"topomask's operators do not load ({error}); they were built for another torch than "
            f"{torch.__version__}: install topomask again with 'pip install . --no-build-isolation'"
        ) from error
